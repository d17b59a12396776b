"""Custom sinks and commit steps that cannot revoke, whose type is not registered, or that fail."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from distcommit.core.interfaces.commit_step import CommitStep, StepContext, class_name
from distcommit.core.interfaces.committer import CommitRequest, CommitterContext, SealRequest, SinkCommitter
from distcommit.sinks.files.sink import FileSink
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import register
from distcommit.testing.fakes.sqlite_sink import SqliteCommitter, SqliteSink
from tests.drills.drill import ROOT, Drilled, NotBrokenError
from tests.drills.folder_moving_checker import FLAG
from tests.drills.quick_drills import Printed, TargetHere, a_job, more
from tests.drills.registry import drill
from tests.drills.targets import NAME, SqliteTables

_OUT_OF_ORDER = "out-of-order"
"""Flag file beside the database: while it exists, no stamp can be created."""


class Rows(SqliteTables):
    """The table of `SqliteSink`, whose rows are JSON."""

    def values(self, table: str) -> list[bytes]:
        rows = self.do(f"SELECT columns FROM records WHERE dataset = '{table}'")
        return [base64.b64decode(json.loads(columns)["value"]) for (columns,) in rows]


class _CommitsOnly(SqliteCommitter):
    """A committer without a `withdraw` of its own."""

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        SinkCommitter.withdraw(self, requests)


class WithoutWithdraw(SqliteSink):
    """A sink that cannot revoke a commit."""

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return _CommitsOnly(self.path, context)


@register
@dataclass
class Stamp(CommitStep):
    """A commit step that creates a file for each epoch of a dataset, without `withdraw` and `undo`."""

    type_name: ClassVar[str] = "drill-stamp"
    path: str

    def verify(self) -> bool:
        return Path(self.path).exists()

    def execute(self) -> None:
        path = Path(self.path)
        if (path.parent / _OUT_OF_ORDER).exists():
            raise OSError("no stamp can be given")
        path.touch()

    def to_row(self) -> list[Any]:
        return [self.path]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls(*row)


class Stamped(SqliteSink):
    """A sink that adds a stamp step to each commit."""

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        stamp = Stamp(f"{Path(self.path).parent}/stamp-{request.dataset_urn}-{request.epoch}")
        return [*super().commit_steps(request, context), stamp]


@register
@dataclass
class Sweep(CommitStep):
    """A commit step that moves a staged file aside, once, as an external cleaner would."""

    type_name: ClassVar[str] = "drill-sweep"
    staged: str
    aside: str

    def verify(self) -> bool:
        return Path(self.aside).exists()

    def execute(self) -> None:
        shutil.move(self.staged, self.aside)

    def withdraw(self) -> None:
        """Do nothing: the step leaves nothing to withdraw."""

    def undo(self) -> None:
        """Do nothing: the step has no effect to undo."""

    def to_row(self) -> list[Any]:
        return [self.staged, self.aside]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls(*row)


class Swept(FileSink):
    """A files sink that moves one staged file of the dataset `NAME` aside before it is published, if the flag
    exists."""

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        steps = [*super().commit_steps(request, context)]
        folder = Path(context.staging_root).parent
        if request.dataset_urn != NAME or not (folder / FLAG).exists():
            return steps
        (folder / FLAG).unlink()
        file = next(step for step in steps if isinstance(step, FsRenameCommitStep))
        return [Sweep(file.source, f"{folder}/swept"), *steps]


@contextmanager
def _job(folder: Path, sink: type[SqliteSink]) -> Iterator[TargetHere]:
    situation = TargetHere(folder, target=Rows(folder))
    section = {"type": "python", "class": class_name(sink).replace(f".{sink.__name__}", f":{sink.__name__}")}
    with a_job(folder, target=situation, sink={**section, "options": {"path": f"{folder}/rows.db"}}) as job:
        yield job


def _refuse(rows: SqliteTables) -> None:
    """Make the database refuse ledger rows of the dataset `NAME`."""
    rows.do(
        f"CREATE TRIGGER refuse BEFORE INSERT ON ledger WHEN NEW.dataset = '{NAME}'"
        " BEGIN SELECT RAISE(ABORT, 'the disk of the database is worn'); END"
    )


@drill("ABANDON_UNFINISHED", "ROLLBACK_FAILED: repair the sink's target, then abandon the dataset again", quick=True)
def abandoning_that_was_not_finished(folder: Path) -> Drilled:
    with _job(folder, SqliteSink) as situation:
        rows = Rows(folder)
        _refuse(rows)
        situation.run(1)
        situation.type(f"distcommit dataset quarantine {situation.path} {NAME}")
        printed = Printed(situation)
        printed.refused(
            f"distcommit dataset release {situation.path} {NAME} abandon", "a sink's committer failed in withdraw()"
        )
        command = printed.problem("ABANDON_UNFINISHED")["command"]
        rows.do("DROP TRIGGER refuse")
        printed.type(command)
        situation.run(0)
        return printed.ended()


@drill("ROLLBACK_NOT_SUPPORTED: or implement `withdraw` in the sink's committer", quick=True)
def sink_without_withdraw(folder: Path) -> Drilled:
    with _job(folder, WithoutWithdraw) as situation:
        _refuse(Rows(folder))
        situation.run(1)
        situation.type(f"distcommit dataset quarantine {situation.path} {NAME}")
        printed = Printed(situation)
        release = f"distcommit dataset release {situation.path} {NAME}"
        printed.refused(f"{release} abandon", "this sink cannot roll back a commit", 3)
        Rows(folder).do("DROP TRIGGER refuse")
        printed.type(f"{release} retry")
        situation.run(0)
        return printed.ended()


@drill("ROLLBACK_NOT_SUPPORTED: release the dataset with retry or accept", quick=True)
def step_without_undo(folder: Path) -> Drilled:
    with _job(folder, Stamped) as situation:
        (folder / _OUT_OF_ORDER).touch()
        situation.run(1)
        for topic in ("a", "b"):
            situation.type(f"distcommit dataset quarantine {situation.path} {topic}")
        (folder / _OUT_OF_ORDER).unlink()
        printed = Printed(situation)
        for topic, how in (("a", "retry"), ("b", "accept")):
            release = f"distcommit dataset release {situation.path} {topic}"
            printed.refused(f"{release} abandon", "this kind of commit step cannot be abandoned", 3)
            printed.type(f"{release} {how}")
        situation.run(0)
        return printed.ended()


_VERSIONS = {
    "written": "from tests.drills.custom_steps import Stamped as Sink\n",
    "without": "from distcommit.testing.fakes.sqlite_sink import SqliteSink as Sink\n",
    "other": """
from distcommit.steps.step_registry import register
from distcommit.testing.fakes.sqlite_sink import SqliteSink as Sink
from distcommit.core.interfaces.commit_step import CommitStep

@register
class Stamp(CommitStep):
    type_name = "drill-stamp"
    def verify(self): return True
    def execute(self): pass
    def to_row(self): return []
    @classmethod
    def from_row(cls, row, version, context):
        number, text = row
""",
}
"""Modules of a custom sink: the original, one without the step, and one whose step reads other rows."""


def _install(folder: Path, version: str) -> None:
    (folder / "drill_sink.py").write_text(_VERSIONS[version], encoding="utf-8")


def _of_another_program(folder: Path, version: str, says: str) -> Drilled:
    """Seal steps, then run with another version of their module.

    One dataset is accepted, the other one is replayed once the module is restored.
    """
    situation = TargetHere(folder, shell=["env", f"PYTHONPATH={folder}:{ROOT}"], target=Rows(folder))
    sink = {"type": "python", "class": "drill_sink:Sink", "options": {"path": f"{folder}/rows.db"}}
    _install(folder, "written")
    with a_job(folder, target=situation, sink=sink):
        (folder / _OUT_OF_ORDER).touch()
        situation.run(1)
        (folder / _OUT_OF_ORDER).unlink()
        _install(folder, version)
        printed = Printed(situation)
        situation.type(f"distcommit dataset quarantine {situation.path} a")
        release = f"distcommit dataset release {situation.path} a"
        printed.refused(f"{release} abandon", says)
        printed.type(f"{release} accept")
        _install(folder, "written")
        more(situation)
        situation.run(0)
        return printed.ended()


@drill("STEP_TYPE_UNKNOWN: import the module that registers the type before the store is read")
def step_of_an_unknown_type(folder: Path) -> Drilled:
    return _of_another_program(folder, "without", "a stored commit step has a type that is not registered")


@drill("STEP_CORRUPT: restore the log from a backup and release the dataset with retry")
def step_that_can_not_be_read(folder: Path) -> Drilled:
    return _of_another_program(folder, "other", "a stored commit step is damaged")


@drill("STAGED_FILE_NOT_PUBLISHABLE: restore the file named", quick=True)
def staged_file_moved_away_before_it_is_published(folder: Path) -> Drilled:
    with a_job(folder, sink={"type": "python", "class": f"{__name__}:Swept"}) as situation:
        (folder / FLAG).touch()
        printed = Printed(situation)
        printed.reported(situation.run(1))
        staged = re.search(r"at (\S+) or", printed.seen[0])
        if staged is None:
            raise NotBrokenError(f"the run does not name the staged file: {printed.seen}")
        Path(staged[1]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "swept", staged[1])  # if it were moved, the step would sweep again
        printed.type(f"distcommit dataset release {situation.path} {NAME} retry")
        situation.run(0)
        return printed.ended()
