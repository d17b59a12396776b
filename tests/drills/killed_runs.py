"""Runs that are killed or frozen, some of which then lose sealed files."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distcommit.app.demo.broker import MockBroker
from distcommit.app.demo.killed_run import CommitWatcher, RunProcess, kill_in_mid_commit
from distcommit.app.jobs.job import Job
from tests.drills.drill import Drilled, KafkaSituation, NotBrokenError, drilled
from tests.drills.registry import drill

_TOPICS = [f"topic-{number:02d}" for number in range(24)]
_DAYS = 6
_TRIES = 4
_LEASE_S = 90.0
_WAIT_S = 600.0


@contextmanager
def _job(folder: Path, **sections: object) -> Iterator[KafkaSituation]:
    """Prepare a job that has run once, so that its folders exist, and has new records."""
    with MockBroker.start(dict.fromkeys(_TOPICS, 1)) as broker:
        situation = KafkaSituation(folder)
        situation.on(broker.bootstrap_servers, _TOPICS, commit={"buckets": 2}, **sections)
        _more(situation)
        situation.run(0)
        _more(situation)
        yield situation


def _more(situation: KafkaSituation) -> None:
    for topic in _TOPICS:
        situation.numbers(topic, 2 * _DAYS, days=_DAYS)


def _killed_in_mid_commit(situation: KafkaSituation) -> None:
    """Kill all processes of a run by SIGKILL when some of its files are published."""
    for _ in range(_TRIES):
        watcher = CommitWatcher(Job.from_file(situation.path).open_store(create=False))
        with situation.start() as run:
            if kill_in_mid_commit(run, watcher, _WAIT_S) is not None:
                return
        _more(situation)  # the run was too quick
    raise NotBrokenError("no run was caught in the middle of its commit")


def _pending_steps(situation: KafkaSituation) -> list[tuple[Path, Path]]:
    """Return staged and final path of each file of the sealed, unpublished steps."""
    sequences = situation.result("dataset steps", "--limit=0")["sequences"]
    steps = [step["subject"] for sequence in sequences for step in sequence["steps"] if step["state"] == "PENDING"]
    paths = [re.findall(r"'([^']+)'", what) for what in steps]
    return [(situation.staging / staged, situation.output / final) for staged, final in paths]


@drill("RUN_DIED")
def dead_driver(folder: Path) -> Drilled:
    with _job(folder) as situation:
        _killed_in_mid_commit(situation)
        return drilled(situation, "RUN_DIED: the last run failed: it died: the driver of epoch")


@drill("COMMIT_PENDING")
def half_replayed_run(folder: Path) -> Drilled:
    """A run is killed in its commit, then the replay of that commit is killed too."""
    with _job(folder) as situation:
        for _ in range(_TRIES):
            _killed_in_mid_commit(situation)
            staged = [source for source, _ in _pending_steps(situation)]
            if _killed_in_mid_replay(situation, staged):
                break
            _more(situation)
        else:
            raise NotBrokenError("no replay was caught in the middle")
        return drilled(situation, "COMMIT_PENDING", afterwards=lambda: _run_as_ever(situation))


def _run_as_ever(situation: KafkaSituation) -> None:
    situation.run(0)  # records that were not sealed when the run was killed are read as usual


def _killed_in_mid_replay(situation: KafkaSituation, staged: list[Path]) -> bool:
    until_s = time.monotonic() + _WAIT_S
    with situation.start("recover") as run:
        while not run.has_ended and time.monotonic() < until_s:
            if not all(path.exists() for path in staged):
                run.freeze()
                unpublished = sum(path.exists() for path in staged)
                run.kill()
                return 0 < unpublished < len(staged)
            time.sleep(0.0005)
    return False


@drill("STAGED_FILE_MISSING", "STEP_LOST: restore the missing data and release the dataset with retry")
def lost_staged_file(folder: Path) -> Drilled:
    with _job(folder) as situation:
        _killed_in_mid_commit(situation)
        _pending_steps(situation)[0][0].unlink()
        text = situation.run(1)
        result = drilled(situation, "STAGED_FILE_MISSING")
        result.seen.append(text)
        return result


@drill("FOREIGN_FILE_AT_TARGET")
def foreign_file_at_the_target(folder: Path) -> Drilled:
    with _job(folder) as situation:
        _killed_in_mid_commit(situation)
        target = _pending_steps(situation)[0][1]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"somebody else's")
        situation.run(1)

        def move_it_away() -> None:
            target.rename(folder / "somebody-elses")

        return drilled(situation, f"FOREIGN_FILE_AT_TARGET: .* at {target}; found other bytes", act=move_it_away)


@drill("LOCK_STUCK")
def stuck_lock(folder: Path) -> Drilled:
    """A driver is frozen, as on an overloaded machine, and keeps the lock; it continues at the end."""
    with _job(folder, lock={"lease_ttl_s": _LEASE_S}) as situation, situation.start() as run:
        _freeze_once_begun(situation, run)
        situation.run(3)
        until_s = time.monotonic() + _WAIT_S
        while not any(t.id == "LOCK_STUCK" for t in Job.from_file(situation.path).status().problems):
            if time.monotonic() > until_s:
                raise NotBrokenError("the frozen run's lease does not become overdue")
            time.sleep(0.5)

        def wake() -> None:
            run.thaw()
            if run.wait(_WAIT_S) in (None, 0):
                raise NotBrokenError("the run that was frozen has ended as if nothing had happened")

        return drilled(situation, "LOCK_STUCK: the run of epoch", afterwards=wake)


def _freeze_once_begun(situation: KafkaSituation, run: RunProcess) -> None:
    watcher = CommitWatcher(Job.from_file(situation.path).open_store(create=False))
    until_s = time.monotonic() + _WAIT_S
    while not watcher.run_has_begun():
        if run.has_ended or time.monotonic() > until_s:
            raise NotBrokenError(f"the run has not begun: {run.stderr.read_text()[-2000:]}")
        time.sleep(0.01)
    run.freeze()
