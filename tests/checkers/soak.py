"""The main job on a real Spark, killed or frozen from outside repeatedly, and audited after each.

The time is random: any time after the run's fence, more often while sequences are pending.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from distcommit.app.jobs.job import Job
from distcommit.core.errors import DistcommitError
from distcommit.core.records.log_records import DatasetState
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.jobs.victims import Role, strike

Server = Literal["name-node", "broker", "spark-worker"]
SERVERS: tuple[Server, ...] = ("name-node", "broker", "spark-worker")

_TOPICS = {f"topic-{number:02d}": 2 for number in range(60)}
_SECTIONS = {
    "commit": {"buckets": 8, "min_interval_ms": 200},
    "lock": {"lease_ttl_s": 2},
    "spark": {"master": "local-cluster[2,1,1024]", "partitions": 4, "conf": {"spark.task.maxFailures": 16}},
}
_END_S = 180.0
_WHOLE_EVERY = 10
_PER_ROUND = 5
_IN_COMMIT = 0.6


class SoakResult(msgspec.Struct):
    """Result of a soak.

    `kills` and `freezes` are signals that reached a process. `missing` and `duplicates` are records, by deep audits.
    `violations` lists all other faults. `struck_in_commit` counts strikes while sequences were pending, `ended` the
    runs' exit codes.
    """

    kills: int = 0
    freezes: int = 0
    rounds: int = 0
    duplicates: int = 0
    missing: int = 0
    records_produced: int = 0
    records_published: int = 0
    sequences_seen_pending: int = 0
    seconds: float = 0
    seed: int = 0
    struck: dict[str, int] = {}
    struck_in_commit: dict[str, int] = {}
    ended: dict[str, int] = {}
    violations: list[str] = []


@dataclass(frozen=True, slots=True)
class Strike:
    """One disturbance of a run: its target, and whether it is killed, or stopped and woken. A server is started again.

    A run that was stopped as a whole is woken when the next one has begun. A stopped Python worker is woken after its
    driver was killed: it continues a task of a run that is over.
    """

    role: Role | Server
    freeze: bool


_PASSING = [Strike("executor", False), Strike("worker", False), Strike("jvm", True), Strike("executor", True)]
"""Strikes that a run survives."""
_ENDING = [
    Strike("driver", False),
    Strike("jvm", False),
    Strike("all", False),
    Strike("all", True),
    Strike("worker", True),
]
"""Strikes that end a run, or let it wake beside the next one."""


class Place:
    """Place of a soak: Spark's `local-cluster`, an embedded broker, and the disk of this machine."""

    passing: Sequence[Strike] = _PASSING

    def open_job(self, folder: Path) -> AbstractContextManager[KafkaJob]:
        """Yield the job, with everything it needs, for the duration of the block."""
        return kafka_job(folder, _TOPICS, **_SECTIONS)

    def others(self) -> list[int]:
        """Return processes that work for runs outside of their sessions."""
        return []

    def restart(self, server: Server, rng: random.Random) -> None:
        """Kill a server and start it again. Only for those that `passing` names."""
        raise NotImplementedError(server)

    def wait_until_idle(self) -> None:
        """Wait until no process works for a run that is over."""


def soak(
    strikes: int, seed: int, folder: Path, say: Callable[[str], None], *, at: Place | None = None, rounds: int = 0
) -> SoakResult:
    """Strike the main job that many times.

    Args:
        strikes: the number of kills and freezes in all.
        seed: chooses target, time and kind.
        folder: for the job and its output.
        say: receives each event, a line each.
        at: the place of the job; by default this machine.
        rounds: the number of struck runs, instead of `strikes`.
    """
    result, rng, began_s, at = SoakResult(seed=seed), random.Random(seed), time.monotonic(), at or Place()
    with at.open_job(folder) as job:
        job.produce(3, days=2)
        usual_s = _whole_run(job, result)
        while result.rounds < rounds if rounds else result.kills + result.freezes < strikes:
            result.rounds += 1
            job.produce(rng.randint(1, 4), days=2)
            remaining = _PER_ROUND if rounds else min(_PER_ROUND, strikes - result.kills - result.freezes)
            done = _round(job, at, usual_s, remaining, rng, result)
            say(f"round {result.rounds}, {time.monotonic() - began_s:.0f} s: {', '.join(done) or 'ended by itself'}")
            at.wait_until_idle()
            _look(job, result, whole=False)
            if result.rounds % _WHOLE_EVERY == 0:
                usual_s = _whole_run(job, result)
        _whole_run(job, result)
    result.seconds = round(time.monotonic() - began_s, 1)
    return result


def _round(job: KafkaJob, at: Place, usual_s: float, at_most: int, rng: random.Random, result: SoakResult) -> list[str]:
    """Start a run and strike it, once or more often; return the strikes, with their times after the fence."""
    watcher, done, disturbed = _watch(job), list[str](), False
    with job.start() as run:
        while not watcher.run_has_begun() and not run.has_ended:
            run.wait(0.02)
        begun_s = time.monotonic()
        times = sorted(rng.random() * usual_s for _ in range(rng.randint(min(3, at_most), at_most)))
        for place, after_s in enumerate(times):
            if rng.random() < _IN_COMMIT:
                _wait_for_commit(run, watcher)
            else:
                run.wait(max(0.0, begun_s + after_s - time.monotonic()))
            if run.has_ended:
                break
            kinds = at.passing if place < len(times) - 1 else [*at.passing, *_ENDING]
            pending = len(_pending(watcher))
            result.sequences_seen_pending += pending
            what = next((one for one in rng.sample(kinds, len(kinds)) if _strike(run, at, one, rng, result)), None)
            if what is None:
                break
            if pending:
                result.struck_in_commit[_name(what)] = result.struck_in_commit.get(_name(what), 0) + 1
            done.append(f"{_name(what)} at {time.monotonic() - begun_s:.1f} s{' in commit' if pending else ''}")
            disturbed |= what in _ENDING or what.role in SERVERS
            if what in _ENDING and what.freeze:
                _next_run_beside(job, at, run, rng, result)
            elif what.freeze:  # the driver lives and keeps its lease: a pause, not a zombie
                run.wait(rng.random() * 4)
                _thaw(run, at)
        code = run.wait(_END_S)
        result.ended[str(code)] = result.ended.get(str(code), 0) + 1
        if code is None:
            result.violations.append(f"round {result.rounds}, {done}: the run did not end in {_END_S:g} s")
        elif code != 0 and not disturbed:
            tail = run.stderr.read_text()[-1500:]
            result.violations.append(f"round {result.rounds}, {done}: the run ended with {code}: {tail}")
    return done


def _wait_for_commit(run: RunProcess, watcher: CommitWatcher) -> None:
    """Wait until a dataset is sealed and not closed, or the run has ended."""
    while not run.has_ended and not _pending(watcher):
        time.sleep(0.002)


def _pending(watcher: CommitWatcher) -> list[DatasetState]:
    with contextlib.suppress(DistcommitError, OSError):  # an outside reader may meet a log that is being truncated
        return watcher.pending()
    return []


def _strike(run: RunProcess, at: Place, what: Strike, rng: random.Random, result: SoakResult) -> bool:
    """Send the signal, and return whether it reached a process."""
    match what.role:
        case "name-node" | "broker" | "spark-worker":
            at.restart(what.role, rng)
        case role:
            if not strike(run, role, signal.SIGSTOP if what.freeze else signal.SIGKILL, rng, at.others()):
                return False
    if what == Strike("worker", True):
        strike(run, "driver", signal.SIGKILL, rng)
        strike(run, "jvm", signal.SIGKILL, rng)
    if what.freeze:
        result.freezes += 1
    else:
        result.kills += 1
    result.struck[_name(what)] = result.struck.get(_name(what), 0) + 1
    return True


def _name(what: Strike) -> str:
    return f"{'freeze' if what.freeze else 'restart' if what.role in SERVERS else 'kill'} {what.role}"


def _thaw(run: RunProcess, at: Place) -> None:
    run.thaw()
    for pid in at.others():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _next_run_beside(job: KafkaJob, at: Place, frozen: RunProcess, rng: random.Random, result: SoakResult) -> None:
    """Start the next run after the frozen run's lease has expired; the frozen one wakes beside it or after it."""
    deadline_s = time.monotonic() + _END_S
    watcher = _watch(job)
    while time.monotonic() < deadline_s:
        with job.start() as other:
            while not watcher.run_has_begun() and not other.has_ended:
                other.wait(0.05)
            if watcher.run_has_begun():
                other.wait(rng.random() * 6)
                _thaw(frozen, at)
                if other.wait(_END_S) not in (0, 1, 3):
                    tail = other.stderr.read_text()[-1500:]
                    result.violations.append(f"round {result.rounds}: the run beside a frozen one failed: {tail}")
                return
        # refused: the frozen run still holds its lease
    _thaw(frozen, at)


def _whole_run(job: KafkaJob, result: SoakResult) -> float:
    """Run undisturbed, require that everything is exact, and return the seconds from fence to end."""
    watcher = _watch(job)
    with job.start() as run:
        while not watcher.run_has_begun() and not run.has_ended:
            run.wait(0.02)
        began_s = time.monotonic()
        code = run.wait(_END_S)
        usual_s = time.monotonic() - began_s
        if code != 0:
            result.violations.append(f"an undisturbed run ended with {code}: {run.stderr.read_text()[-1500:]}")
    _look(job, result, whole=True)
    return usual_s


def _look(job: KafkaJob, result: SoakResult, *, whole: bool) -> None:
    """Audit deeply. After a strike sequences may be pending; after a whole run nothing may be missing."""
    audit = job.audit(deep=True)
    result.duplicates += audit.duplicates
    result.records_produced, result.records_published = job.produced, audit.records + audit.rejected_records
    wrong = audit.gaps or audit.past_watermark or audit.unknown_files_count or audit.unreadable
    if wrong or audit.duplicates:
        audit.partitions = []
        result.violations.append(f"round {result.rounds}: {audit}")
    if whole:
        result.missing += max(0, job.produced - audit.records - audit.rejected_records)
        if not audit.exact:
            audit.partitions = []
            result.violations.append(f"round {result.rounds}, after a whole run: {audit}")


def _watch(job: KafkaJob) -> CommitWatcher:
    return CommitWatcher(Job.from_file(job.path).open_store(create=True))
