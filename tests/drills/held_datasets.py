"""Datasets that are pending, quarantined, stopped, held back, or queried too early; each is released."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.drills.drill import Drilled
from tests.drills.folder_moving_checker import FLAG, moves_away, put_back
from tests.drills.quick_drills import Here, KafkaHere, Printed, a_job
from tests.drills.registry import drill


def block(situation: Here, topic: str) -> None:
    """Put a file where a topic's folder is, so that its dataset cannot be published."""
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
    """Yield a job with one sealed dataset that cannot be published."""
    with a_job(folder, **sections) as situation:
        block(situation, "a")
        situation.run(1)
        yield situation


@contextmanager
def quarantined(folder: Path, **sections: Any) -> Iterator[KafkaHere]:
    """Yield a job whose pending dataset was quarantined because a run could not replay it."""
    with pending(folder, **{"replay": {"max_attempts": 1}, **sections}) as situation:
        situation.run(1)
        yield situation


@drill("DATASET_QUARANTINED", quick=True)
def replay_that_failed_too_often(folder: Path) -> Drilled:
    with quarantined(folder) as situation:
        printed = Printed(situation)
        command = printed.problem("DATASET_QUARANTINED")["command"]
        unblock(situation, "a")
        printed.type(command)
        situation.run(0)
        return printed.ended()


@drill("COMMIT_PENDING", quick=True)
def pending_dataset(folder: Path) -> Drilled:
    with pending(folder) as situation:
        printed = Printed(situation)
        command = printed.problem("COMMIT_PENDING")["command"]
        unblock(situation, "a")
        printed.type(command)
        return printed.ended()


@drill("JOB_PAUSED", quick=True)
def paused_job(folder: Path) -> Drilled:
    with a_job(folder, schedule={"interval_s": 3600}) as situation:
        situation.type(f"distcommit schedule pause {situation.path}")
        printed = Printed(situation)
        printed.type(printed.problem("JOB_PAUSED")["command"])
        situation.run(0)
        return printed.ended()


@contextmanager
def stopped(folder: Path, **sections: Any) -> Iterator[KafkaHere]:
    """Yield a job with one dataset that is stopped because a run could not read a record of it."""
    json, task = {"type": "json", "fields": {"n": "int64"}}, {"attempts": 1, "stop_after_failed_runs": 1}
    with a_job(folder, converters=[json], task=task, **sections) as situation:
        situation.produce("a", b"poison")
        situation.run(1)
        yield situation


@drill("DATASET_STOPPED", "REPROCESS_OF_STOPPED_DATASET: release the dataset with retry; then reprocess", quick=True)
def stopped_dataset(folder: Path) -> Drilled:
    with stopped(folder) as situation:
        situation.write(on_rejected="divert")
        printed = Printed(situation)
        again = f"distcommit dataset reprocess {situation.path} a"
        printed.refused(again, "no run plans this dataset")
        printed.type(printed.problem("DATASET_STOPPED: a is stopped")["command"])
        situation.run(0)
        situation.write(converters=[])
        printed.type(again)
        situation.given[b"poison"] += 1  # the error file stays beside the published files
        return printed.ended(rejected=Counter([b"poison"]))


@drill("READ_FAILED", quick=True)
def dataset_that_could_not_be_read(folder: Path) -> Drilled:
    with a_job(folder, converters=[{"type": "json", "fields": {"n": "int64"}}], task={"attempts": 1}) as situation:
        situation.produce("a", b"poison")
        situation.run(1)
        situation.write(on_rejected="divert")
        printed = Printed(situation)
        printed.type(printed.problem("READ_FAILED: a could not be read")["command"])
        return printed.ended(rejected=Counter([b"poison"]))


@drill(
    "RENAME_OF_STOPPED_DATASET: `distcommit dataset release JOB.yaml DATASET retry`, run it with its former",
    quick=True,
)
def stopped_dataset_that_gets_another_name(folder: Path) -> Drilled:
    with stopped(folder) as situation:
        before = situation.config["source"]
        situation.write(source={**before, "dataset": "partition"}, on_rejected="divert")
        printed = Printed(situation)
        again = f"distcommit store rebucket {situation.path}"
        printed.refused(again, "stopped datasets cannot be renamed")
        situation.write(source=before)
        printed.type(f"distcommit dataset release {situation.path} a retry")
        situation.run(0)
        situation.write(source={**before, "dataset": "partition"})
        printed.type(again)
        situation.run(0)
        return printed.ended(rejected=Counter([b"poison"]))


_POSITIONS = "'{\"0\": 10}'"


@drill("DATASET_PENDING: commit it: the next run does, or `distcommit recover`", quick=True)
def watermark_of_a_pending_dataset(folder: Path) -> Drilled:
    with pending(folder) as situation:
        printed = Printed(situation)
        command = f"distcommit dataset set-watermark {situation.path} a {_POSITIONS}"
        printed.refused(command, "found pending", 3)
        unblock(situation, "a")
        printed.type(f"distcommit recover {situation.path}")
        printed.type(command)
        return printed.ended()


@drill("DATASET_IN_QUARANTINE: release it with retry, accept or abandon", quick=True)
def watermark_of_a_quarantined_dataset(folder: Path) -> Drilled:
    """The dataset is released with retry, quarantined again for the same cause, and released with accept."""
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


@drill("DATASET_BEING_ABANDONED: release it with abandon, which resumes", quick=True)
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


@drill("TOMBSTONE_NOT_PUBLISHED: release the dataset with", quick=True)
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
        printed.refused(f"{release} accept", "the sequence replaces files, and its tombstone is not published", 3)
        put_back(folder, "output/_rejected")
        printed.type(f"{release} abandon")
        situation.run(0)
        printed.type(again)
        situation.given[b"poison"] += 1  # the error file stays beside the published files
        return printed.ended(rejected=Counter([b"poison"]))


@drill(
    "DATASET_NOT_READ: release it with retry; or set its watermark past the",
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


@drill("DATASET_IDLE: nothing: the dataset has no sequence", quick=True)
def releasing_a_dataset_that_is_idle(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        printed.refused(f"distcommit dataset release {situation.path} a retry", "found idle", 3)
        situation.run(0)
        return printed.ended()
