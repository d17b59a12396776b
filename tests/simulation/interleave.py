"""Interleavings: several actors on one store, stepping at each storage operation, reads included.

A deterministic scheduler lets exactly one actor proceed at a time; the seed chooses which one, so that a seed can be
replayed. Each actor is the product's own code in a thread of its own, above system calls that wait for their turn.

A history in its printed form is `cast:seed`, or `cast:seed:trouble`. With a trouble, the seed also chooses the struck
actor, the place and the duration:

- `slow`: one actor's operation takes effect only after all others have ended;
- `full`: for one actor or all of them the disk is full, for a while or permanently;
- `bad`: operations of one actor fail, once or for a while; `lost`: one takes effect, and its answer is an error;
- `killed`: one actor dies before an operation.

In every case each record in the logs is valid at its place, no file of a sealed sequence is lost, and an undisturbed
run afterwards makes everything exact; with errors that may need as many runs as replay has attempts.
"""

from __future__ import annotations

import errno
import itertools
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from distcommit.core.errors import ConflictError, DistcommitError, StaleStoreError
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.store import SEGMENT_SUFFIX
from distcommit.stores.state.job_store import has_store
from distcommit.testing.fakes.faulty_calls import Crashed, Fault, FaultyCalls
from tests.simulation.casts import CASTS
from tests.simulation.casts.parts import Act, Cast, Scene, let_go
from tests.simulation.explore import shares
from tests.simulation.log_watch import LogWatch, lost_files
from tests.simulation.simulated_posix import SimulatedPosix

TROUBLES = ("", "slow", "full", "bad", "lost", "killed")
_WRITES = frozenset({"open_new", "write", "mkdir", "link", "rename_noreplace"})
_UNSEEN = frozenset({"close", "fstat", "write", "realpath"})
"""Operations of one actor that no other actor can observe."""
_EVER = 1_000_000


class Turns:
    """Lets one actor proceed at a time, from one storage operation to the next."""

    def __init__(self, names: Sequence[str], rng: random.Random, stickiness: float, slow: tuple[str, int]) -> None:
        self._rng, self._stickiness, self._slow = rng, stickiness, slow
        self.taken: Counter[str] = Counter()
        self._waiting = dict.fromkeys(names, True)
        self._wake = {name: threading.Semaphore(0) for name in names}
        self._scheduler = threading.Semaphore(0)
        self.trace: list[str] = []

    def take(self, name: str, operation: str) -> None:
        """Wait until it is the actor's turn for its next operation."""
        self._scheduler.release()
        self._wake[name].acquire()
        self.taken[name] += 1
        self.trace.append(f"{name}.{operation}")

    def end(self, name: str) -> None:
        """Record that an actor has ended."""
        del self._waiting[name]
        self._scheduler.release()

    def conduct(self) -> None:
        """Wake one actor after the other until all have ended. Before each choice all have called `take` or `end`."""
        for _ in range(len(self._waiting)):
            self._scheduler.acquire()
        last = ""
        while self._waiting:
            able = [name for name in sorted(self._waiting) if not self._is_slow(name)] or sorted(self._waiting)
            if last not in able or self._rng.random() >= self._stickiness:
                last = self._rng.choice(able)
            self._wake[last].release()
            self._scheduler.acquire()

    def _is_slow(self, name: str) -> bool:
        """Return whether the actor's next operation is the slow one."""
        return (name, self.taken[name]) == self._slow


class _GatedCalls:
    """System calls of one actor: each waits for its turn first."""

    def __init__(self, calls: PosixCalls, turns: Turns, name: str) -> None:
        self._calls, self._turns, self._name = calls, turns, name

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        call = getattr(self._calls, operation)

        def gated(*arguments: Any) -> Any:
            if operation not in _UNSEEN:
                self._turns.take(self._name, operation)
            return call(*arguments)

        return gated


class _WatchedCalls:
    """System calls on a machine that report files put into a log."""

    def __init__(self, machine: SimulatedPosix, watch: LogWatch) -> None:
        self._machine, self._watch = machine, watch

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._machine, operation)
        return call

    def rename_noreplace(self, source: str, target: str) -> None:
        self._machine.rename_noreplace(source, target)
        if target.endswith(SEGMENT_SUFFIX):
            self._watch.saw(target, self._machine.read_file(target))


class _KilledCalls:
    """System calls of one actor, which dies before the call of that number."""

    def __init__(self, calls: PosixCalls, left: int) -> None:
        self._calls, self._remaining = calls, left

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        call = getattr(self._calls, operation)

        def passed_on(*arguments: Any) -> Any:
            if operation not in _UNSEEN:
                self._remaining -= 1
            if self._remaining < 0:
                raise Crashed
            return call(*arguments)

        return passed_on


@dataclass(slots=True)
class Interleaved:
    """Results: distinct interleavings (hashes of the order of operations), and violations by history."""

    traces: set[int] = field(default_factory=set)
    violations: list[dict[str, str]] = field(default_factory=list)


@cache
def _staged(name: str) -> tuple[SimulatedPosix, Mapping[str, Act], Mapping[str, int]]:
    """Return the machine for the cast's actors, their parts, and the approximate number of operations of each."""
    machine = SimulatedPosix()
    machine.mkdir("/job")
    CASTS[name].world.store(machine)
    parts = CASTS[name].stage(machine)
    machine.syncfs("/")
    rehearsal = machine.after_kill()
    turns = Turns(sorted(parts), random.Random(name), 0.9, ("", 0))
    _act(CASTS[name], parts, turns, Scene(), dict.fromkeys(parts, cast(PosixCalls, rehearsal)))
    return machine, parts, turns.taken


def play(name: str, seed: int, trouble: str = "") -> tuple[int, str]:
    """Play one interleaving; return its hash and the violation, if any.

    Args:
        name: the cast.
        seed: chooses the order, and the actor that the trouble strikes.
        trouble: one of `TROUBLES`.
    """
    staged, parts, operations = _staged(name)
    machine, cast_ = staged.after_kill(), CASTS[name]
    rng = random.Random(f"{name}{seed}{trouble}")
    watch = LogWatch(cast_.open(cast(PosixCalls, machine)))
    watched = cast(PosixCalls, _WatchedCalls(machine, watch))
    calls, slow = dict.fromkeys(parts, watched), ("", 0)
    victim = rng.choice(sorted(set(parts) - cast_.blind))
    at = rng.randrange(operations[victim])
    if trouble == "slow":
        slow = (victim, at)
    elif trouble == "killed":
        calls[victim] = cast(PosixCalls, _KilledCalls(watched, at))
    elif trouble:
        fault = _fault(trouble, at, rng)
        struck = sorted(set(parts) - cast_.blind) if trouble == "full" and rng.random() < 0.5 else [victim]
        calls |= {role: cast(PosixCalls, FaultyCalls(watched, fault)) for role in struck}
    scene = Scene(disturbed=trouble not in ("", "slow", "killed"))
    turns = Turns(sorted(parts), rng, rng.choice((0.0, 0.5, 0.9, 0.98)), slow)
    wrong = _act(cast_, parts, turns, scene, calls)
    wrong = wrong or _violation(cast_, machine, watch, disturbed=trouble not in ("", "slow"))
    return hash(tuple(turns.trace)), wrong


def _fault(trouble: str, at: int, rng: random.Random) -> Fault:
    match trouble:
        case "full":
            place, times = rng.randrange(at + 1), rng.choice((1, rng.randrange(1, 40), _EVER))
            return Fault(errno.ENOSPC, place, times, concerns=lambda name, arguments: name in _WRITES)
        case "bad":
            return Fault(errno.EIO, at, rng.choice((1, 1, rng.randrange(1, 20), _EVER)))
        case "lost":
            return Fault(errno.EIO, at, takes_effect=True)
    raise ValueError(trouble)


def _act(cast_: Cast, parts: Mapping[str, Act], turns: Turns, scene: Scene, calls: Mapping[str, PosixCalls]) -> str:
    """Let all actors act to their end; return a violation by them, if any."""
    wrong: list[str] = []

    def actor(role: str, act: Act) -> None:
        try:
            act(cast_.open(cast(PosixCalls, _GatedCalls(calls[role], turns, role))), scene)
        except (Crashed, ConflictError, StaleStoreError):
            pass  # killed, fenced, or overtaken by another writer: the rules at work
        except (DistcommitError, OSError) as error:
            if not scene.disturbed:
                wrong.append(f"{role} fails: {''.join(traceback.format_exception(error))}")
        except Exception as error:  # noqa: BLE001 - what is not typed is a finding
            wrong.append(f"{role} fails: {''.join(traceback.format_exception(error))}")
        finally:
            turns.end(role)

    threads = [threading.Thread(target=actor, args=item, daemon=True) for item in parts.items()]
    for thread in threads:
        thread.start()
    turns.conduct()
    for thread in threads:
        thread.join()
    return "; ".join(wrong)


def _violation(cast_: Cast, machine: SimulatedPosix, watch: LogWatch, *, disturbed: bool) -> str:
    """Return a violation once the actors are gone and a run came; after an error more runs may be needed."""
    calls = cast(SimulatedPosix, _WatchedCalls(machine, watch))
    try:
        before = cast_.world.watermarks(machine)
        store = cast_.open(calls)
        if has_store(store.fs, store.roots):
            if wrong := lost_files(store):
                return wrong
            if disturbed:
                let_go(store)
        for _ in range(cast_.world.max_attempts if disturbed else 1):
            succeeded = cast_.last_run(cast_, calls)
            if wrong := watch.violation(cast_.world.store(machine)):
                return wrong
            wrong = cast_.violation(cast_, machine, before) or ("" if succeeded else "the last run does not succeed")
            if not wrong:
                return ""
    except (DistcommitError, OSError, AssertionError, ValueError, KeyError) as error:
        return f"the run afterwards fails: {''.join(traceback.format_exception(error))}"
    return wrong


def interleave(seconds: float, seed: int, processes: int = 2, casts: Sequence[str] = ()) -> dict[str, object]:
    """Play interleavings for a time, and add up the findings of all processes."""
    names = list(casts) or list(CASTS)
    began = time.monotonic()
    total = Interleaved()
    with shares(processes, _play_share, names, seconds, seed) as parts:
        for part in parts:
            total.traces |= part.traces
            total.violations += part.violations
    return {
        "interleavings": len(total.traces),
        "violations": total.violations,
        "seconds": round(time.monotonic() - began, 1),
        "seed": seed,
        "casts": names,
    }


def _play_share(names: Sequence[str], seconds: float, seed: int, share: int, shares: int) -> Interleaved:
    until = time.monotonic() + seconds
    results = Interleaved()
    for history, trace, wrong in plays(names, itertools.count(seed * 1_000_000 + share, shares)):
        results.traces.add(trace)
        if wrong:
            results.violations.append({"history": history, "violation": wrong})
        if time.monotonic() > until:
            break
    return results


def plays(names: Sequence[str], seeds: Iterable[int]) -> Iterator[tuple[str, int, str]]:
    """Yield histories, hashes of interleavings and violations: all casts for each seed, each with the next trouble
    in turn."""
    for turn, seed in enumerate(seeds):
        for place, name in enumerate(names):
            trouble = TROUBLES[(turn + place) % len(TROUBLES)]
            yield ":".join(filter(None, (name, str(seed), trouble))), *play(name, seed, trouble)
