"""Interleavings: two and three actors on one store, stepping at each storage operation, reads included.

A deterministic scheduler lets exactly one actor go at a time; which one is the seed's choice, so a seed replays. Each
actor is the product's own code in a thread of its own, above system calls that wait for their turn.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from distcommit.fs.posix import PosixCalls
from distcommit.model.errors import ConflictError, DistcommitError
from distcommit.testing.casts import CASTS, SOURCE, WORLD, Act, Scene
from distcommit.testing.explore import shares
from distcommit.testing.simulated_posix import SimulatedPosix


class _Turns:
    """Lets one actor go at a time, from one storage operation to the next."""

    def __init__(self, names: Sequence[str], rng: random.Random, stickiness: float) -> None:
        self._rng, self._stickiness = rng, stickiness
        self._waiting = dict.fromkeys(names, True)
        self._wake = {name: threading.Semaphore(0) for name in names}
        self._scheduler = threading.Semaphore(0)
        self.trace: list[str] = []

    def take(self, name: str, operation: str) -> None:
        """An actor is about to do something; returns when it is its turn."""
        self._scheduler.release()
        self._wake[name].acquire()
        self.trace.append(f"{name}.{operation}")

    def end(self, name: str) -> None:
        """An actor has ended."""
        del self._waiting[name]
        self._scheduler.release()

    def conduct(self) -> None:
        """Wakes one actor after the other until all have ended. Before each choice all have called `take` or `end`."""
        for _ in range(len(self._waiting)):
            self._scheduler.acquire()
        last = ""
        while self._waiting:
            if last not in self._waiting or self._rng.random() >= self._stickiness:
                last = self._rng.choice(sorted(self._waiting))
            self._wake[last].release()
            self._scheduler.acquire()


class _GatedCalls:
    """System calls of one actor: each waits for its turn first."""

    def __init__(self, calls: SimulatedPosix, turns: _Turns, name: str) -> None:
        self._calls, self._turns, self._name = calls, turns, name

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        call = getattr(self._calls, operation)

        def gated(*arguments: Any) -> Any:
            if operation not in ("close", "fstat", "write", "realpath"):  # nobody else sees these
                self._turns.take(self._name, operation)
            return call(*arguments)

        return gated


@dataclass(slots=True)
class Interleaved:
    """What was seen: distinct interleavings (hashes of who did what when), and violations by history."""

    traces: set[int] = field(default_factory=set)
    violations: list[dict[str, str]] = field(default_factory=list)


@cache
def _staged(name: str) -> tuple[SimulatedPosix, Mapping[str, Act]]:
    """The machine as the cast's actors find it, and their parts; the same for every interleaving."""
    machine = SimulatedPosix()
    machine.mkdir("/job")
    WORLD.store(machine)
    return machine, CASTS[name].stage(machine)


def play(name: str, seed: int) -> tuple[int, str]:
    """Plays one interleaving; returns its hash and what was violated, if anything."""
    staged, parts = _staged(name)
    machine = staged.after_kill()
    rng = random.Random(f"{name}{seed}")
    scene = Scene()
    turns = _Turns(sorted(parts), rng, rng.choice((0.0, 0.5, 0.9, 0.98)))
    wrong: list[str] = []

    def actor(role: str, act: Act) -> None:
        try:
            act(WORLD.store(cast(PosixCalls, _GatedCalls(machine, turns, role))), scene)
        except ConflictError:
            pass  # fenced, or somebody else was first: the rules at work
        except (DistcommitError, OSError, AssertionError, ValueError, KeyError) as error:
            wrong.append(f"{role} fails: {''.join(traceback.format_exception(error))}")
        finally:
            turns.end(role)

    threads = [threading.Thread(target=actor, args=item, daemon=True) for item in parts.items()]
    for thread in threads:
        thread.start()
    turns.conduct()
    for thread in threads:
        thread.join()
    if not wrong:
        before = WORLD.watermarks(machine)
        result = WORLD.run(machine, SOURCE)
        violation = CASTS[name].violation(machine, before)
        if violation or not result.succeeded:
            wrong.append(violation or f"the last run does not succeed: {result}")
    return hash(tuple(turns.trace)), "; ".join(wrong)


def interleave(seconds: float, seed: int, processes: int = 2, casts: Sequence[str] = ()) -> dict[str, object]:
    """Plays interleavings for a time and adds up the findings of all processes."""
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
    found = Interleaved()
    for history, trace, wrong in plays(names, itertools.count(seed * 1_000_000 + share, shares)):
        found.traces.add(trace)
        if wrong:
            found.violations.append({"history": history, "violation": wrong})
        if time.monotonic() > until:
            break
    return found


def plays(names: Sequence[str], seeds: Iterable[int]) -> Iterator[tuple[str, int, str]]:
    """Histories, hashes of interleavings and what is wrong after each, if anything: all casts for each seed in turn."""
    for seed in seeds:
        for name in names:
            yield f"{name}:{seed}", *play(name, seed)
