"""Interleavings: two and three actors on one store, stepping at each storage operation, reads included.

A deterministic scheduler lets exactly one actor go at a time; which one is the seed's choice, so a seed replays. Each
actor is the product's own code in a thread of its own, above system calls that wait for their turn.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from distcommit.fs.posix import PosixCalls
from distcommit.model.errors import ConflictError, DistcommitError
from distcommit.model.log_records import Failed, Record, SequenceName
from distcommit.model.watermark import Watermark
from distcommit.protocol.fold import Fold
from distcommit.spark.ingest import drain_partition, ingest_partition
from distcommit.spark.planner import plan_partition, share_out
from distcommit.spark.recover import recover_partition
from distcommit.spark.settings import RunSettings
from distcommit.stores import by_hand
from distcommit.stores.job_store import JobStore
from distcommit.stores.plans import publish_manifest
from distcommit.stores.task_states import record_ingest_ended
from distcommit.testing.explore import shares
from distcommit.testing.model_source import ModelDataset, ModelSource
from distcommit.testing.simulated_posix import Crashed, Operation, SimulatedPosix
from distcommit.testing.world import World

WORLD = World()
SOURCE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2})})


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


Act = Callable[[JobStore], None]


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast of actors: `stage` prepares a machine and gives each actor's part; `expected` checks what they leave."""

    name: str
    stage: Callable[[SimulatedPosix], Mapping[str, Act]]


def _planned(machine: SimulatedPosix) -> RunSettings:
    """A run that has fenced, recovered and planned, and is about to ingest."""
    settings = WORLD.begin(machine, SOURCE)
    recover_partition(settings, 0)
    manifest = share_out(settings, [plan_partition(settings, 0)])
    publish_manifest(settings.store.fs, settings.store.roots.store, manifest)
    return settings


def _on(settings: RunSettings, store: JobStore) -> RunSettings:
    """The same run, on an actor's own view of the machine."""
    return RunSettings(**{name: getattr(settings, name) for name in RunSettings.__slots__} | {"store": store})


def _ingests(settings: RunSettings) -> Act:
    return lambda store: cast(None, ingest_partition(_on(settings, store), 0))


def _finishes(settings: RunSettings) -> Act:
    """A run's tasks from ingest to drain, however late they come."""

    def act(store: JobStore) -> None:
        mine = _on(settings, store)
        ingest_partition(mine, 0)
        record_ingest_ended(store.fs, store.roots.store, mine.run_id)
        drain_partition(mine, 0)

    return act


def _runs(store: JobStore) -> None:
    WORLD.run(store.fs._calls, SOURCE)  # type: ignore[attr-defined]


def _keeps(store: JobStore) -> None:
    """Checkpoints and truncates, again and again."""
    for _ in range(3):
        for log in (store.bucket_log(0), store.job_log()):
            log.checkpoint(at_least=1)


def _sets(store: JobStore) -> None:
    """A person sets a dataset's watermark, if nothing of it was ever committed."""
    if store.bucket_log(0).refresh().state_of("a").watermark is None:
        by_hand.set_watermark(store, "a", Watermark({"0": 1, "1": 0}), "person")


def _twins(machine: SimulatedPosix) -> Mapping[str, Act]:
    settings = _planned(machine)
    return {"owner": _ingests(settings), "twin": _ingests(settings)}


def _twins_and_keeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {**_twins(machine), "keeper": _keeps}


def _zombie(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"zombie": _finishes(_planned(machine)), "run": _runs}


def _zombie_and_keeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {**_zombie(machine), "keeper": _keeps}


def _two_drivers(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"one": _runs, "two": _runs}


def _person_sets(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"run": _finishes(_planned(machine)), "person": _sets}


def _person_abandons(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A sequence is quarantined while a zombie is about to execute it; a person abandons it, and a run comes."""
    settings = _planned(machine)

    def zombie(store: JobStore) -> None:
        drain_partition(_on(settings, store), 0)

    def sealed_then_quarantined() -> None:
        def gate(operation: Operation) -> None:
            if operation.kind == "rename" and operation.path.startswith(settings.store.roots.output):
                raise Crashed

        machine.gate = gate
        with suppress(Crashed):
            ingest_partition(settings, 0)
        machine.gate = None
        log = settings.store.bucket_log(0, settings.epoch)
        name = SequenceName("a", settings.epoch)

        def decide(fold: Fold) -> Record | None:
            return Failed(settings.epoch, name, True, "by the test") if fold.state_of("a") in fold.pending() else None

        log.settle(decide)

    sealed_then_quarantined()

    def person(store: JobStore) -> None:
        by_hand.abandon(store, "a", "person")

    return {"zombie": zombie, "person": person, "run": _runs}


CASTS = {
    cast_.name: cast_
    for cast_ in (
        Cast("twins", _twins),
        Cast("twins-keeper", _twins_and_keeper),
        Cast("zombie", _zombie),
        Cast("zombie-keeper", _zombie_and_keeper),
        Cast("two-drivers", _two_drivers),
        Cast("person-sets", _person_sets),
        Cast("person-abandons", _person_abandons),
    )
}


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
    turns = _Turns(sorted(parts), rng, rng.choice((0.0, 0.5, 0.9, 0.98)))
    wrong: list[str] = []

    def actor(role: str, act: Act) -> None:
        try:
            act(WORLD.store(cast(PosixCalls, _GatedCalls(machine, turns, role))))
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
        violation = WORLD.violation(machine, SOURCE, before, set_by_hand=name == "person-sets")
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
    turn = seed * 1_000_000 + share
    while time.monotonic() < until:
        for name in names:
            trace, wrong = play(name, turn)
            found.traces.add(trace)
            if wrong:
                found.violations.append({"history": f"{name}:{turn}", "violation": wrong})
        turn += shares
    return found
