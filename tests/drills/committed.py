"""Sequences that a target has committed and the log has not: abandoning them is refused, or needs another command."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distcommit.app.jobs.job import Job
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.steps.step_registry import load_steps
from tests.drills.drill import Drilled, nothing
from tests.drills.held_datasets import block, unblock
from tests.drills.quick_drills import TOPICS, Printed, TargetHere, a_job, more
from tests.drills.registry import drill, drill_of
from tests.drills.targets import LAKES, LEDGER, NAME, SqliteTables, SqlTables, open_target


@contextmanager
def _sealed(kind: str, folder: Path, **options: Any) -> Iterator[TargetHere]:
    """Yield a job whose dataset `NAME` is sealed: its files cannot be published, and its rows come after them."""
    with open_target(kind, folder) as target:
        situation = TargetHere(folder, target=target, is_forked=True, options=options)
        with a_job(folder, target=situation, **situation.sections):
            block(situation, NAME)
            situation.run(1)
            yield situation


def _commit_and_die(situation: TargetHere) -> None:
    """Execute all steps of the sealed sequences, as a run that dies before recording it."""
    unblock(situation, NAME)
    job = Job.from_file(situation.path)
    store = job.open_store(create=False)
    committers = job.config.task_flow().committers
    context = StepContext(store.fs, store.roots.staging, store.roots.output, committers, store.store_id)
    sequence = store.bucket_log(store.bucket_of(NAME)).refresh().state_of(NAME).sequence
    for step in load_steps(sequence.steps if sequence else (), context):
        step.execute()


def _refused_and_released(
    situation: TargetHere, says: str, how: str, afterwards: Callable[[], None] = nothing
) -> Drilled:
    """Quarantine the dataset, check that abandoning it is refused, and release it as the refusal states."""
    situation.type(f"distcommit dataset quarantine {situation.path} {NAME}")
    printed = Printed(situation)
    release = f"distcommit dataset release {situation.path} {NAME}"
    printed.refused(f"{release} abandon", says, 3)
    printed.type(f"{release} {how}")
    afterwards()
    situation.run(0)
    more(situation)
    situation.run(0)
    return printed.ended()


@drill_of("COMMIT_NOT_REVERSIBLE: release the dataset with accept", kinds=["sqlite"], quick=True)
def rows_without_tags(folder: Path, kind: str) -> Drilled:
    with _sealed(kind, folder) as situation:
        _commit_and_die(situation)
        return _refused_and_released(situation, "a commit to this table can't be taken back", "accept")


@drill_of("COMMIT_NOT_REVERSIBLE: release the dataset with accept", kinds=["sqlite"], quick=True)
def rows_that_were_moved_away(folder: Path, kind: str) -> Drilled:
    """The rows of a commit were moved to another table; they return once the dataset is released."""
    with _sealed(kind, folder, tags=True) as situation:
        _commit_and_die(situation)
        tables = situation.target
        assert isinstance(tables, SqlTables)
        tables.do(f"CREATE TABLE aside AS SELECT * FROM {NAME}")
        tables.do(f"DELETE FROM {NAME}")

        def put_back() -> None:
            tables.do(f"INSERT INTO {NAME} SELECT * FROM aside")

        says = "some of the committed rows are missing"
        return _refused_and_released(situation, says, "accept", put_back)


@drill_of("COMMIT_NOT_REVERSIBLE: release the dataset with accept", kinds=["kafka"])
def messages_that_were_committed(folder: Path, kind: str) -> Drilled:
    with _sealed(kind, folder) as situation:
        _commit_and_die(situation)
        return _refused_and_released(situation, "Kafka can't take back a commit", "accept")


def _compacted(folder: Path, kind: str, says: str) -> Drilled:
    with _sealed(kind, folder) as situation:
        _commit_and_die(situation)
        LAKES[kind](folder).compact()
        return _refused_and_released(situation, says, "accept")


@drill("COMMIT_NOT_REVERSIBLE: release the dataset with accept", quick=True)
def iceberg_table_that_was_compacted(folder: Path) -> Drilled:
    return _compacted(folder, "iceberg", "data files of the commit can't be removed from the table")


@drill("COMMIT_NOT_REVERSIBLE: release the dataset with accept", quick=True)
def delta_table_that_was_compacted(folder: Path) -> Drilled:
    return _compacted(folder, "delta", "data files of the commit can't be removed from the table")


@drill_of("COMMIT_NOT_REVERSIBLE: release the dataset with retry, or accept", kinds=["mariadb", "postgresql"])
def prepared_rows_that_were_committed(folder: Path, kind: str) -> Drilled:
    """A run died after the database committed the prepared rows and before the ledger recorded it."""
    with _sealed(kind, folder, two_phase=True) as situation:
        _settle(situation, commit=True)
        unblock(situation, NAME)
        return _refused_and_released(situation, "a commit to this table can't be taken back", "retry")


@drill_of("PREPARED_ROWS_LOST: release the dataset with abandon", kinds=["mariadb", "postgresql"])
def prepared_rows_that_were_rolled_back(folder: Path, kind: str) -> Drilled:
    with _sealed(kind, folder, two_phase=True) as situation:
        _settle(situation, commit=False)
        unblock(situation, NAME)
        situation.run(1)
        printed = Printed(situation)
        printed.type(printed.problem("transactions are neither prepared nor committed")["command"])
        situation.run(0)
        return printed.ended()


def _settle(situation: TargetHere, *, commit: bool) -> None:
    assert isinstance(situation.target, SqlTables)
    situation.target.in_doubt(commit=commit)


@contextmanager
def _restored(folder: Path) -> Iterator[TargetHere]:
    """Yield a job whose folders, but not its table, were restored from a copy of before its last run."""
    situation = TargetHere(folder, target=SqliteTables(folder))
    with a_job(folder, target=situation, **situation.sections):
        for name in ("store", "staging", "output"):
            shutil.copytree(folder / name, folder / "copies" / name)
        situation.run(0)
        for name in ("store", "staging", "output"):
            shutil.rmtree(folder / name)
            (folder / "copies" / name).rename(folder / name)
        yield situation


_OTHER_EPOCH = "another epoch of the dataset is committed"


@drill("TARGET_EPOCH_DIFFERS: if the target has all records of epoch", quick=True)
def folders_from_a_backup_whose_table_has_all(folder: Path) -> Drilled:
    with _restored(folder) as situation:
        situation.run(1)
        printed = Printed(situation)
        for topic in TOPICS:
            release = f"distcommit dataset release {situation.path} {topic}"
            printed.refused(f"{release} abandon", _OTHER_EPOCH, 3)
            printed.type(f"{release} accept")
        more(situation)
        situation.run(0)
        return printed.ended()


@drill("TARGET_EPOCH_DIFFERS: if the target has all records of epoch", quick=True)
def folders_from_a_backup_whose_table_lacks_records(folder: Path) -> Drilled:
    with _restored(folder) as situation:
        more(situation)
        situation.run(1)
        printed = Printed(situation)
        for topic in TOPICS:
            release = f"distcommit dataset release {situation.path} {topic}"
            printed.refused(f"{release} abandon", _OTHER_EPOCH, 3)
            SqliteTables(folder).do(f"DELETE FROM {topic}")
            SqliteTables(folder).do(f"DELETE FROM {LEDGER} WHERE dataset = '{topic}'")
            printed.type(f"{release} restart")
        situation.run(0)
        return printed.ended()
