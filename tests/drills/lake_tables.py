"""Iceberg and Delta tables that are dropped, recreated or altered under a job, each resolved by the printed remedy.

The tables change between two runs, or by a task checker between writing and committing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck, TaskChecker
from tests.drills.drill import Drilled
from tests.drills.quick_drills import Printed, TargetHere, a_job, more
from tests.drills.registry import drill_of
from tests.drills.targets import LAKES

_RELEASED = "DATASET_QUARANTINED"
_FLAG = "act"


class ActsOnce(TaskChecker):
    """Checker that changes the table of `NAME` by the flag file's content, after an attempt at that topic has been
    written."""

    def __init__(self, folder: str, kind: str) -> None:
        self._folder, self._kind = folder, kind

    def begin(self) -> TaskCheck:
        return _Act(Path(self._folder), self._kind)


class _Act(TaskCheck):
    def __init__(self, folder: Path, kind: str) -> None:
        self._tables, self._flag, self._is_it = LAKES[kind](folder), folder / _FLAG, False

    def inspect(self, batch: pa.RecordBatch) -> None:
        self._is_it = self._is_it or b'"topic":"a"' in batch.column("value")[0].as_py()

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        if self._is_it and self._flag.exists():
            act = self._flag.read_text()
            self._flag.unlink()
            getattr(self._tables, act)()
        return True, ""


@contextmanager
def _job(kind: str, folder: Path, runs: int) -> Iterator[TargetHere]:
    """Yield a job after that many runs, with unread records."""
    situation = TargetHere(folder, target=LAKES[kind](folder))
    options = {"folder": str(folder), "kind": kind}
    checker = {"type": "python", "class": f"{__name__}:ActsOnce", "options": options}
    with a_job(folder, runs=runs, target=situation, task_checkers=[checker], **situation.sections):
        yield situation


def _resolved(kind: str, folder: Path, cause: str, act: str, *, runs: int, within: bool) -> Drilled:
    """Change the table, run the job, type the printed command, and run again."""
    with _job(kind, folder, runs) as situation:
        change: Callable[[], None] = getattr(situation.target, act)
        if within:
            (folder / _FLAG).write_text(act)
        else:
            change()
        situation.run(1)
        printed = Printed(situation)
        printed.type(printed.problem(cause)["command"])
        situation.run(0)
        more(situation)
        situation.run(0)
        return printed.ended()


@drill_of(_RELEASED, kinds=["iceberg", "delta"], quick=True)
def table_dropped(folder: Path, kind: str) -> Drilled:
    return _resolved(kind, folder, "was dropped and recreated", "drop", runs=2, within=False)


@drill_of(_RELEASED, kinds=["iceberg", "delta"], quick=True)
def table_recreated(folder: Path, kind: str) -> Drilled:
    return _resolved(kind, folder, "was dropped and recreated", "recreate", runs=1, within=False)


@drill_of(_RELEASED, kinds=["iceberg", "delta"], quick=True)
def table_dropped_before_the_commit(folder: Path, kind: str) -> Drilled:
    return _resolved(kind, folder, "does not exist any more", "drop", runs=1, within=True)


@drill_of(_RELEASED, kinds=["iceberg", "delta"], quick=True)
def table_recreated_before_the_commit(folder: Path, kind: str) -> Drilled:
    """Iceberg tables are recreated before the first commit, Delta tables after one."""
    return _resolved(kind, folder, "was recreated: its id", "recreate", runs=int(kind == "delta"), within=True)


@drill_of(_RELEASED, kinds=["iceberg", "delta"], quick=True)
def table_altered_before_the_commit(folder: Path, kind: str) -> Drilled:
    return _resolved(kind, folder, "was altered after the data files were written", "alter", runs=0, within=True)


@drill_of(_RELEASED, kinds=["iceberg", "delta"], quick=True)
def table_without_its_ledger(folder: Path, kind: str) -> Drilled:
    """The table has its rows without its ledger: the operator drops the table first, as printed."""
    with _job(kind, folder, runs=1) as situation:
        tables = LAKES[kind](folder)
        tables.forget()
        situation.run(1)
        printed = Printed(situation)
        command = printed.problem("has no ledger row of the dataset")["command"]
        tables.drop()
        printed.type(command.replace("retry", "restart"))
        situation.run(0)
        return printed.ended()
