"""Datasets of one commit group, of which one cannot be published and holds the others back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.drills.drill import Drilled, NotBrokenError
from tests.drills.held_datasets import block, unblock
from tests.drills.quick_drills import Printed, TargetHere, a_job
from tests.drills.registry import drill_of
from tests.drills.targets import SqliteTables

_PUBLISHED = 5
"""Records of each dataset that are published before a run fails."""


def _topic(value: bytes) -> str:
    """Return the topic that a value of a drill names."""
    record: dict[str, str] = json.loads(value)
    return record["topic"]


class _OneTable(SqliteTables):
    """The table `events` of a SQLite file, which all datasets share."""

    def values(self, table: str) -> list[bytes]:
        return [value for value in super().values("events") if _topic(value) == table]


@drill_of("COMMIT_GROUP_HELD_BACK", kinds=("retry", "accept", "abandon"), quick=True)
def lost_file_that_holds_back_its_commit_group(folder: Path, how: str) -> Drilled:
    """Seal two datasets of one table, and delete the staged file of one.

    If that one is released with accept, its sealed records are lost, in its files and in the table.
    """
    target = TargetHere(folder, target=_OneTable(folder), is_forked=True, options={"table": "events"})
    with a_job(folder, target=target, commit={"buckets": 2, "scope": "job"}, **target.sections) as situation:
        block(situation, "a")
        situation.run(1)
        unblock(situation, "a")
        staged = list(situation.staging.rglob("*.parquet"))
        if len(staged) != 1:
            raise NotBrokenError(f"the staging folder must have one file, which is of the dataset a: {staged}")
        staged[0].rename(folder / "lost.parquet")
        situation.run(1)
        printed = Printed(situation)
        printed.problem("COMMIT_PENDING: b is sealed.*held_by=a.*release that dataset with retry, accept or abandon")
        if len(situation.target.values("b")) != _PUBLISHED:
            raise NotBrokenError("the table has sealed records of the dataset b, which was to be held back")
        sealed = Counter(value for value in situation.given - situation.published()[0] if _topic(value) == "a")
        if how == "retry":
            (folder / "lost.parquet").rename(staged[0])
        printed.type(f"distcommit dataset release {situation.path} a {how}")
        situation.run(0)
        gone = sealed if how == "accept" else Counter()
        if set(situation.target.values("a")) & gone.keys():
            printed.result.problems.append("the table has records of the dataset a that its files do not have")
        return printed.ended(gone=gone)
