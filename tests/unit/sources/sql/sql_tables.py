"""A database in a file, the SQL source on it, and runs of one dataset by hand."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from distcommit.core.interfaces.source import DatasetProblem, Planned, Source, SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.core.work import DatasetPlan
from distcommit.sources.sql.source import SqlSource
from tests.unit.sources.reading_again import states_of


@contextlib.contextmanager
def database(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes; what was written is committed."""
    connection = sqlite3.connect(file)
    with contextlib.closing(connection), connection:
        yield connection


def source(file: Path | str, **settings: Any) -> SqlSource:
    """The source on a SQLite file, or on the database of a URL."""
    url = f"sqlite:///{file}" if isinstance(file, Path) else file
    base: dict[str, Any] = {"type": "sql", "url": url}
    base |= {} if settings.get("table_type") == "snapshot_only" else {"watermark": "id", "lookback": 0}
    base |= {} if settings.keys() & {"tables", "table_patterns"} else {"tables": ["t"]}
    return SqlSource.model_validate({**base, **settings})


def planned(source: Source, states: Mapping[str, DatasetState] | None = None) -> list[Planned]:
    """What it plans of all datasets."""
    return list(source.plan(lambda urn: True, states if isinstance(states, SourceState) else SourceState(states or {})))


class Reader:
    """One dataset, run after run: what was read of it, and how far."""

    def __init__(self, source: Source, dataset: str = "t") -> None:
        self.source, self.dataset = source, dataset
        self.rows: list[dict[str, Any]] = []
        self.watermark: Watermark | None = None
        self.problems: list[str] = []

    def plan(self, again: Watermark | None = None) -> DatasetPlan | None:
        """The next plan; problems are kept. `again`: where what a run could not read was to end."""
        read = {self.dataset: self.watermark} if self.watermark else {}
        states = states_of(read, {self.dataset: again} if again else {})
        found = planned(self.source, states)
        self.problems = [each.error for each in found if isinstance(each, DatasetProblem)]
        plans = [each for each in found if isinstance(each, DatasetPlan) and each.dataset_urn == self.dataset]
        return plans[0] if plans else None

    def read(self, plan: DatasetPlan, batches: int | None = None) -> list[dict[str, Any]]:
        """Reads a plan, to its end or so many batches, and moves the watermark."""
        extractor = self.source.open()
        came: list[dict[str, Any]] = []
        with contextlib.closing(extractor):
            for unit in plan.work_units:
                extraction = extractor.extract(unit)
                for count, batch in enumerate(extraction, 1):
                    came += batch.to_pylist()
                    if count == batches:
                        break
                assert unit.can_end_at(extraction.actual_high())
                self.watermark = extraction.actual_high()
                if not self.watermark.covers(unit.expected_high):
                    break  # what lies behind it waits
        self.rows += came
        return came

    def run(self) -> list[dict[str, Any]]:
        """A run: what it has read."""
        plan = self.plan()
        return self.read(plan) if plan else []


def queried(source: Callable[..., SqlSource], query: str) -> pa.RecordBatch:
    """What a query gives whose key is `id`. `source`: makes the source with such settings."""
    reader = Reader(source(tables=[], queries={"q": query}, overrides={"q": {"keys": ["id"]}}), "q")
    plan = reader.plan()
    assert plan is not None, reader.problems
    with contextlib.closing(reader.source.open()) as extractor:
        (batch,) = extractor.extract(plan.work_units[0])
    return batch
