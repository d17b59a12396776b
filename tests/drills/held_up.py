"""Datasets that wait: pending, quarantined, stopped, held back, or asked about too early. Each is released."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.drills.acting import FLAG, moves_away, put_back
from tests.drills.desk import Here, KafkaHere, Printed, a_job
from tests.drills.drill import Drilled
from tests.drills.registry import drill


def block(situation: Here, topic: str) -> None:
    """Put a file where a topic's folder is, so that nothing of it can be published."""
    folder = situation.output / topic
    if folder.exists():
        folder.rename(situation.folder / f"{topic}-aside")
    folder.write_bytes(b"")


def unblock(situation: Here, topic: str) -> None:
    """Undo `block`."""
    folder, aside = situation.output / topic, situation.folder / f"{topic}-aside"
    folder.unlink()
    if aside.exists():
        aside.rename(folder)


@contextmanager
def pending(folder: Path, **sections: Any) -> Iterator[KafkaHere]:
    """A job of which one dataset is sealed, and can't be published."""
    with a_job(folder, **sections) as situation:
        block(situation, "a")
        situation.run(1)
        yield situation


@contextmanager
def quarantined(folder: Path, **sections: Any) -> Iterator[KafkaHere]:
    """One of which that dataset was quarantined, since a run could not replay it."""
    with pending(folder, **{"replay": {"max_attempts": 1}, **sections}) as situation:
        situation.run(1)
        yield situation


@drill("quarantined, and left alone until it is released", quick=True)
def replay_that_failed_too_often(folder: Path) -> Drilled:
    with quarantined(folder) as situation:
        printed = Printed(situation)
        command = printed.problem("quarantined, and left alone")["command"]
        unblock(situation, "a")
        printed.type(command)
        situation.run(0)
        return printed.ended()


@drill("sealed and not closed: the next run replays them", quick=True)
def pending_dataset(folder: Path) -> Drilled:
    with pending(folder) as situation:
        printed = Printed(situation)
        command = printed.problem("sealed and not closed")["command"]
        unblock(situation, "a")
        printed.type(command)
        return printed.ended()


@drill("paused by …", quick=True)
def paused_job(folder: Path) -> Drilled:
    with a_job(folder, schedule={"interval_s": 3600}) as situation:
        situation.type(f"distcommit schedule pause {situation.path}")
        printed = Printed(situation)
        printed.type(printed.problem("paused by")["command"])
        situation.run(0)
        return printed.ended()


@contextmanager
def stopped(folder: Path, **sections: Any) -> Iterator[KafkaHere]:
    """A job of which one dataset is stopped, as a run could not read a record of it."""
    json, task = {"type": "json", "fields": {"n": "int64"}}, {"attempts": 1, "stop_after_failed_runs": 1}
    with a_job(folder, converters=[json], task=task, **sections) as situation:
        situation.produce("a", b"poison")
        situation.run(1)
        yield situation


@drill("stopped, as too many runs in a row could not read it", "release it with retry; then reprocess", quick=True)
def stopped_dataset(folder: Path) -> Drilled:
    with stopped(folder) as situation:
        situation.write(on_rejected="divert")
        printed = Printed(situation)
        again = f"distcommit dataset reprocess {situation.path} a"
        printed.refused(again, "no run plans this dataset")
        printed.type(printed.problem("a: stopped, as too many runs in a row")["command"])
        situation.run(0)
        situation.write(converters=[])
        printed.type(again)
        situation.given[b"poison"] += 1  # the error file stays beside what is published of it now
        return printed.ended(rejected=Counter([b"poison"]))


@drill("`distcommit dataset release JOB.yaml DATASET retry`, and run it as it was configured before", quick=True)
def stopped_dataset_that_gets_another_name(folder: Path) -> Drilled:
    with stopped(folder) as situation:
        before = situation.config["source"]
        situation.write(source={**before, "dataset": "partition"}, on_rejected="divert")
        printed = Printed(situation)
        again = f"distcommit store rebucket {situation.path}"
        printed.refused(again, "datasets that are stopped can't get other names")
        situation.write(source=before)
        printed.type(f"distcommit dataset release {situation.path} a retry")
        situation.run(0)
        situation.write(source={**before, "dataset": "partition"})
        printed.type(again)
        situation.run(0)
        return printed.ended(rejected=Counter([b"poison"]))


_POSITIONS = "'{\"0\": 10}'"


@drill("commit it: the next run does, or `distcommit recover`", quick=True)
def watermark_of_a_pending_dataset(folder: Path) -> Drilled:
    with pending(folder) as situation:
        printed = Printed(situation)
        command = f"distcommit dataset set-watermark {situation.path} a {_POSITIONS}"
        printed.refused(command, "found pending", 3)
        unblock(situation, "a")
        printed.type(f"distcommit recover {situation.path}")
        printed.type(command)
        return printed.ended()


@drill("stores/operator/operator_actions.py:_not | release it with retry, accept or abandon", quick=True)
def watermark_of_a_quarantined_dataset(folder: Path) -> Drilled:
    """It is released with retry, and quarantined again, as its cause is still there; then with accept."""
    with quarantined(folder) as situation:
        printed = Printed(situation)
        command = f"distcommit dataset set-watermark {situation.path} a {_POSITIONS}"
        printed.refused(command, "found quarantined", 3)
        printed.type(f"distcommit dataset release {situation.path} a retry")
        situation.run(1)
        unblock(situation, "a")
        sealed = situation.given - situation.published()[0]
        printed.type(f"distcommit dataset release {situation.path} a accept")
        printed.type(command)
        situation.run(0)
        return printed.ended(gone=sealed)


@drill("stores/operator/operator_actions.py:_not | release it with abandon, which goes on", quick=True)
def retry_of_a_dataset_that_is_being_abandoned(folder: Path) -> Drilled:
    with quarantined(folder) as situation:
        unblock(situation, "a")
        staged = next(path for path in situation.staging.rglob("*.parquet") if path.is_file())
        aside, staged_in = folder / "aside", staged.parent
        staged_in.rename(aside)
        staged_in.write_bytes(b"")
        printed = Printed(situation)
        release = f"distcommit dataset release {situation.path} a"
        printed.refused(f"{release} abandon", "could not be removed")
        printed.refused(f"{release} retry", "found revoking", 3)
        staged_in.unlink()
        aside.rename(staged_in)
        printed.type(f"{release} abandon")
        situation.run(0)
        return printed.ended()


@drill("stores/operator/operator_actions.py:_require_replaced | release the dataset with abandon", quick=True)
def accepting_a_replacement_that_is_not_published(folder: Path) -> Drilled:
    """Seal the reprocessed records of an error file, and block the tombstone that replaces that file."""
    json = {"type": "json", "fields": {"n": "int64"}}
    checker = moves_away(folder, "output/_rejected", leaves_file=True)
    checks: dict[str, Any] = {"task_checkers": [checker], "replay": {"max_attempts": 1}}
    with a_job(folder, converters=[json], on_rejected="divert", **checks) as situation:
        situation.produce("a", b"poison")
        situation.run(0)
        situation.write(converters=[])
        again = f"distcommit dataset reprocess {situation.path} a"
        (folder / FLAG).touch()
        situation.type(again)
        situation.run(1)
        printed = Printed(situation)
        release = f"distcommit dataset release {situation.path} a"
        printed.refused(f"{release} accept", "this sequence takes the place of files", 3)
        put_back(folder, "output/_rejected")
        printed.type(f"{release} abandon")
        situation.run(0)
        printed.type(again)
        situation.given[b"poison"] += 1  # the error file stays beside what is published of it now
        return printed.ended(rejected=Counter([b"poison"]))


@drill(
    "stores/operator/operator_actions.py:_not | release it with retry; or set its watermark past what can't be read",
    quick=True,
)
def accepting_a_stopped_dataset(folder: Path) -> Drilled:
    with stopped(folder) as situation:
        printed = Printed(situation)
        printed.refused(f"distcommit dataset release {situation.path} a accept", "found stopped", 3)
        situation.write(on_rejected="divert")
        printed.type(f"distcommit dataset release {situation.path} a retry")
        situation.run(0)
        return printed.ended(rejected=Counter([b"poison"]))


@drill("stores/operator/operator_actions.py:_not | nothing: the dataset has no sequence that is not done", quick=True)
def releasing_a_dataset_that_is_idle(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        printed.refused(f"distcommit dataset release {situation.path} a retry", "found idle", 3)
        situation.run(0)
        return printed.ended()
