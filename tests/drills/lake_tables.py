"""Iceberg and Delta tables that were dropped, recreated or altered under a job. Each is resolved by what is printed.

The tables are changed between two runs, or by a task checker, which acts between writing and committing.
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.types import BinaryType

from distcommit.app.demo.broker import MockBroker
from distcommit.model.constructs import BranchCounts, TaskCheck, TaskChecker
from tests.drills.desk import TOPICS, KafkaHere, Printed, more
from tests.drills.drill import Drilled
from tests.drills.registry import drill

NAME = "a"
"""The dataset whose table is changed, and the table."""


@dataclass
class TablesHere(KafkaHere):
    """A job whose records go to tables."""

    @property
    @abstractmethod
    def sink(self) -> dict[str, Any]:
        """The sink's section."""

    @abstractmethod
    def values(self, table: str) -> list[bytes]:
        """The values that the table has."""

    @abstractmethod
    def drop(self) -> None:
        """Drop the table `NAME`."""

    @abstractmethod
    def recreate(self) -> None:
        """Drop the table `NAME`, and create an empty one of its columns."""

    @abstractmethod
    def alter(self) -> None:
        """Take the column `value` away from the table `NAME`, so that files that have it do not fit any more."""

    @abstractmethod
    def forget(self) -> None:
        """Take the table's ledger away, and leave its rows."""

    def published(self) -> tuple[Counter[bytes], Counter[bytes]]:
        return Counter(value for topic in TOPICS for value in self.values(topic)), Counter()


@dataclass
class IcebergHere(TablesHere):
    """Iceberg tables in a catalog of SQLite."""

    @property
    def _catalog(self) -> dict[str, str]:
        place = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}
        return {"type": "sql", **place}

    @property
    def sink(self) -> dict[str, Any]:
        return {"type": "iceberg", "catalog": self._catalog, "namespace": "n", "evolve": "add_columns"}

    def values(self, table: str) -> list[bytes]:
        with load_catalog("default", **self._catalog) as catalog:
            found: list[bytes] = catalog.load_table(("n", table)).scan().to_arrow()["value"].to_pylist()
        return found

    def drop(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            catalog.drop_table(("n", NAME))

    def recreate(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            schema = catalog.load_table(("n", NAME)).schema()
            catalog.drop_table(("n", NAME))
            catalog.create_table(("n", NAME), schema)

    def alter(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            with catalog.load_table(("n", NAME)).update_schema(allow_incompatible_changes=True) as change:
                change.delete_column("value")
            with catalog.load_table(("n", NAME)).update_schema() as change:
                change.add_column("value", BinaryType())

    def forget(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            table = catalog.load_table(("n", NAME))
            with table.transaction() as change:
                change.remove_properties(*(name for name in table.properties if name.startswith("distcommit.")))


@dataclass
class DeltaHere(TablesHere):
    """Delta tables in a folder."""

    @property
    def location(self) -> Path:
        return self.folder / "tables"

    @property
    def sink(self) -> dict[str, Any]:
        self.location.mkdir(exist_ok=True)
        return {"type": "delta", "location": str(self.location), "evolve": "add_columns"}

    def values(self, table: str) -> list[bytes]:
        found: list[bytes] = DeltaTable(self.location / table).to_pyarrow_table()["value"].to_pylist()
        return found

    def drop(self) -> None:
        shutil.rmtree(self.location / NAME / "_delta_log")

    def recreate(self) -> None:
        empty = self._columns().empty_table()
        self.drop()
        write_deltalake(self.location / NAME, empty)

    def alter(self) -> None:
        without = pa.schema([field for field in self._columns() if field.name != "value"])
        write_deltalake(self.location / NAME, without.empty_table(), mode="overwrite", schema_mode="overwrite")

    def forget(self) -> None:
        rows = DeltaTable(self.location / NAME).to_pyarrow_table()
        self.drop()
        write_deltalake(self.location / NAME, rows)

    def _columns(self) -> pa.Schema:
        return pa.schema(DeltaTable(self.location / NAME).schema().to_arrow())


_KINDS: dict[str, type[TablesHere]] = {"iceberg": IcebergHere, "delta": DeltaHere}
_FLAG = "act"


class ActsOnce(TaskChecker):
    """Changes the table of `NAME` as the flag file says, once what an attempt wrote for that topic is checked."""

    def __init__(self, folder: str, kind: str) -> None:
        self._folder, self._kind = folder, kind

    def begin(self) -> TaskCheck:
        return _Act(Path(self._folder), self._kind)


class _Act(TaskCheck):
    def __init__(self, folder: Path, kind: str) -> None:
        self._situation, self._flag, self._is_it = _KINDS[kind](folder), folder / _FLAG, False

    def see(self, batch: pa.RecordBatch) -> None:
        self._is_it = self._is_it or b'"topic":"a"' in batch.column("value")[0].as_py()

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        if self._is_it and self._flag.exists():
            act = self._flag.read_text()
            self._flag.unlink()
            getattr(self._situation, act)()
        return True, ""


@contextmanager
def _job(kind: str, folder: Path, runs: int) -> Iterator[TablesHere]:
    """A job after so many runs, with unread records."""
    with MockBroker.start(dict.fromkeys(TOPICS, 1)) as broker:
        situation = _KINDS[kind](folder)
        situation.brokers = broker.bootstrap_servers
        situation.write(
            source={"type": "kafka", "brokers": situation.brokers, "topics": list(TOPICS)},
            sink=situation.sink,
            commit={"buckets": 2},
            task_checkers=[
                {
                    "type": "python",
                    "class": "tests.drills.lake_tables:ActsOnce",
                    "options": {"folder": str(folder), "kind": kind},
                }
            ],
        )
        for _ in range(runs):
            more(situation)
            situation.run(0)
        more(situation)
        yield situation


def _resolved(kind: str, folder: Path, cause: str, act: str, *, runs: int, within: bool) -> Drilled:
    """Change the table, run into it, type what is printed, and run again."""
    with _job(kind, folder, runs) as situation:
        change: Callable[[], None] = getattr(situation, act)
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


@drill("quarantined, and left alone until it is released", quick=True)
def iceberg_table_dropped(folder: Path) -> Drilled:
    return _resolved("iceberg", folder, "was dropped and recreated", "drop", runs=2, within=False)


@drill("quarantined, and left alone until it is released", quick=True)
def delta_table_dropped(folder: Path) -> Drilled:
    return _resolved("delta", folder, "was dropped and recreated", "drop", runs=2, within=False)


@drill("quarantined, and left alone until it is released", quick=True)
def iceberg_table_recreated(folder: Path) -> Drilled:
    return _resolved("iceberg", folder, "was dropped and recreated", "recreate", runs=1, within=False)


@drill("quarantined, and left alone until it is released", quick=True)
def delta_table_recreated(folder: Path) -> Drilled:
    return _resolved("delta", folder, "was dropped and recreated", "recreate", runs=1, within=False)


@drill("quarantined, and left alone until it is released", quick=True)
def iceberg_table_dropped_before_the_commit(folder: Path) -> Drilled:
    return _resolved("iceberg", folder, "there is no table", "drop", runs=1, within=True)


@drill("quarantined, and left alone until it is released", quick=True)
def delta_table_dropped_before_the_commit(folder: Path) -> Drilled:
    return _resolved("delta", folder, "there is no table", "drop", runs=1, within=True)


@drill("quarantined, and left alone until it is released", quick=True)
def iceberg_table_recreated_before_the_first_commit(folder: Path) -> Drilled:
    return _resolved("iceberg", folder, "was recreated: its id", "recreate", runs=0, within=True)


@drill("quarantined, and left alone until it is released", quick=True)
def delta_table_recreated_before_the_commit(folder: Path) -> Drilled:
    return _resolved("delta", folder, "was recreated: its id", "recreate", runs=1, within=True)


@drill("quarantined, and left alone until it is released", quick=True)
def iceberg_table_altered_before_the_commit(folder: Path) -> Drilled:
    return _resolved("iceberg", folder, "was altered after the data files were written", "alter", runs=0, within=True)


@drill("quarantined, and left alone until it is released", quick=True)
def delta_table_altered_before_the_commit(folder: Path) -> Drilled:
    return _resolved("delta", folder, "was altered after the data files were written", "alter", runs=0, within=True)


def _without_ledger(kind: str, folder: Path) -> Drilled:
    """The table has its rows, and its ledger is gone: it is dropped by hand first, as the text says."""
    with _job(kind, folder, runs=1) as situation:
        situation.forget()
        situation.run(1)
        printed = Printed(situation)
        command = printed.problem("has no ledger row of the dataset")["command"]
        situation.drop()
        printed.type(command.replace("retry", "restart"))
        situation.run(0)
        return printed.ended()


@drill("quarantined, and left alone until it is released", quick=True)
def iceberg_table_without_its_ledger(folder: Path) -> Drilled:
    return _without_ledger("iceberg", folder)


@drill("quarantined, and left alone until it is released", quick=True)
def delta_table_without_its_ledger(folder: Path) -> Drilled:
    return _without_ledger("delta", folder)
