"""A SQLite database file, the SQL source on it, and a reader of one dataset over several runs."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from distcommit.core.interfaces.source import DatasetProblem, Planned, Source, SourceState
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.sql.source import SqlSource
from tests.unit.sources.retried_ranges import states_of


@contextlib.contextmanager
def database(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection that writes; its transaction is committed at the end."""
    connection = sqlite3.connect(file)
    with contextlib.closing(connection), connection:
        yield connection


def source(file: Path | str, **settings: Any) -> SqlSource:
    """Return the source on a SQLite file, or on the database of a URL."""
    url = f"sqlite:///{file}" if isinstance(file, Path) else file
    base: dict[str, Any] = {"type": "sql", "url": url}
    base |= {} if settings.get("table_type") == "snapshot_only" else {"watermark": "id", "lookback": 0}
    base |= {} if settings.keys() & {"tables", "table_patterns"} else {"tables": ["t"]}
    return SqlSource.model_validate({**base, **settings})


def planned(source: Source, states: Mapping[str, DatasetState] | None = None) -> list[Planned]:
    """Return the source's plans and problems of all datasets."""
    return list(source.plan(lambda urn: True, states if isinstance(states, SourceState) else SourceState(states or {})))


def deferred(source: Source, read: Watermark | None = None) -> dict[str, tuple[int, bool]]:
    """Return by dataset how many rows a plan leaves for later runs, and whether there may be more.

    Args:
        source: the source.
        read: the watermark of dataset `t`; None if it was not read yet.
    """
    elements = planned(source, states_of({"t": read} if read else {}, {}))
    return {one.dataset_urn: (one.records, one.is_minimum) for one in elements if isinstance(one, DeferredRecords)}


class Reader:
    """A reader of one dataset over several runs, with all rows read and the watermark."""

    def __init__(self, source: Source, dataset: str = "t") -> None:
        self.source, self.dataset = source, dataset
        self.rows: list[dict[str, Any]] = []
        self.watermark: Watermark | None = None
        self.problems: list[str] = []

    def plan(self, again: Watermark | None = None) -> DatasetPlan | None:
        """Return the next plan and record problems. `again`: the end of the last run's read failure."""
        read = {self.dataset: self.watermark} if self.watermark else {}
        states = states_of(read, {self.dataset: again} if again else {})
        results = planned(self.source, states)
        self.problems = [result.error for result in results if isinstance(result, DatasetProblem)]
        plans = [result for result in results if isinstance(result, DatasetPlan) and result.dataset_urn == self.dataset]
        return plans[0] if plans else None

    def read(self, plan: DatasetPlan, batches: int | None = None) -> list[dict[str, Any]]:
        """Read a plan to its end, or only `batches` of it, and advance the watermark."""
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
                    break  # later batches wait
        self.rows += came
        return came

    def run(self) -> list[dict[str, Any]]:
        """Return the rows that one run reads."""
        plan = self.plan()
        return self.read(plan) if plan else []


def queried(source: Callable[..., SqlSource], query: str) -> pa.RecordBatch:
    """Return the rows of a query whose key is `id`. `source` creates the source with the given settings."""
    reader = Reader(source(tables=[], queries={"q": query}, overrides={"q": {"keys": ["id"]}}), "q")
    plan = reader.plan()
    assert plan is not None, reader.problems
    with contextlib.closing(reader.source.open()) as extractor:
        (batch,) = extractor.extract(plan.work_units[0])
    return batch
