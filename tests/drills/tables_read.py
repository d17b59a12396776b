"""Tables and lists whose rows or settings have changed under their watermarks."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.drills.drill import Drilled
from tests.drills.quick_drills import Here, Printed, loads
from tests.drills.registry import drill
from tests.servers.rest import RestServer


@dataclass
class TablesHere(Here):
    """Job that reads tables of SQLite."""

    key: str = "INTEGER PRIMARY KEY"

    def begin(self, *tables: str, **source: Any) -> None:
        """Create the tables, and write the job file."""
        for table in tables:
            self.do(f"CREATE TABLE {table} (id {self.key}, value BLOB)")
        base = {"type": "sql", "url": f"sqlite:///{self.folder}/tables.db", "tables": list(tables)}
        self.write(source={**base, "watermark": "id", "lookback": 0, **source}, commit={"buckets": 2})

    def do(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.folder / "tables.db")) as connection, connection:
            connection.execute(statement, values)

    def insert(self, table: str, *ids: int, mark: str = "") -> None:
        """Insert rows into a table."""
        for number in ids:
            value = f"{table}{mark}-{number}".encode()
            self.do(f"INSERT INTO {table} VALUES (?, ?)", number, value)
            self.given[value] += 1


def _resolved(situation: Here, cause: str, command: str = "") -> Drilled:
    """Run the job, type the printed command, and run again."""
    situation.run(1)
    printed = Printed(situation)
    problem = printed.problem(cause)
    printed.type(command or problem["command"])
    situation.run(0)
    return printed.ended()


@drill("WATERMARK_COLUMN_ENDED: if only its newest rows were deleted", "WATERMARK_COLUMN_ENDED", quick=True)
def table_filled_anew(folder: Path) -> Drilled:
    situation = TablesHere(folder)
    situation.begin("t", "u")
    situation.insert("t", 1, 2, 3, 4)
    situation.insert("u", 1)
    situation.run(0)
    situation.do("DELETE FROM t")
    situation.insert("t", 1, 2, mark="-new")
    situation.insert("u", 2)
    return _resolved(situation, "t could not be planned: the watermark column ends before the stored position")


@drill("WATERMARK_KEY_REMOVED: restore the key", quick=True)
def key_taken_away(folder: Path) -> Drilled:
    situation = TablesHere(folder, key="INTEGER NOT NULL")
    situation.begin("t", overrides={"t": {"keys": ["id"]}})
    situation.insert("t", 1, 2, 3)
    situation.run(0)
    source = situation.config["source"]
    situation.write(source={**source, "overrides": {}})
    situation.run(1)
    printed = Printed(situation)
    problem = printed.problem("t could not be planned: the watermark column is no longer a key")
    situation.write(source=source)
    situation.insert("t", 4)
    printed.type(problem["command"])
    return printed.ended()


@drill(
    "SOURCE_QUERY_CHANGED: continues there with the job file's query; null begins again at source.start",
    quick=True,
)
def query_exchanged(folder: Path) -> Drilled:
    situation = TablesHere(folder)
    situation.begin("t")
    situation.write(
        source={
            **situation.config["source"],
            "tables": [],
            "queries": {"q": "SELECT id, value FROM t"},
            "overrides": {"q": {"keys": ["id"]}},
        }
    )
    situation.insert("t", 1, 2, 3)
    situation.run(0)
    queries = {"q": "SELECT id, value FROM t WHERE id <> 0"}
    situation.write(source={**situation.config["source"], "queries": queries})
    situation.insert("t", 4)
    return _resolved(situation, "q could not be planned: the dataset was read by another query")


@drill("SOURCE_QUERY_CHANGED", quick=True)
def query_exchanged_seen_by_its_command(folder: Path) -> Drilled:
    return query_exchanged(folder)


@drill(
    "STORED_POSITION_FOREIGN: set the watermark column that the dataset was read by (none for snapshots)", quick=True
)
def watermark_column_exchanged(folder: Path) -> Drilled:
    situation = TablesHere(folder)
    situation.begin("t")
    situation.do("ALTER TABLE t ADD COLUMN other INTEGER")
    for number in (1, 2, 3):
        situation.do("INSERT INTO t VALUES (?, ?, ?)", number, b"%d" % number, number * 10)
        situation.given[b"%d" % number] += 1
    situation.run(0)
    source = situation.config["source"]
    situation.write(source={**source, "watermark": "other"})
    situation.run(1)
    printed = Printed(situation)
    printed.problem("t could not be planned: the stored position is not one of the watermark column")
    situation.write(source=source)
    situation.do("INSERT INTO t VALUES (4, ?, 40)", b"4")
    situation.given[b"4"] += 1
    situation.run(0)
    return printed.ended()


@drill("OFFSETS_NOT_RECORDED: compare what `distcommit status --json` has of both", quick=True)
def comparing_jobs_without_offsets(folder: Path) -> Drilled:
    situation = TablesHere(folder)
    situation.begin("t")
    situation.insert("t", 1, 2, 3)
    situation.run(0)
    shutil.copy(situation.path, folder / "other.yaml")
    printed = Printed(situation)
    printed.refused(f"distcommit migrate compare {situation.path} {folder}/other.yaml", "by the offsets in their files")
    statuses = [loads(printed.type(f"distcommit status {folder}/{name} --json")) for name in ("job.yaml", "other.yaml")]
    if statuses[0]["datasets"] != statuses[1]["datasets"]:
        printed.result.problems.append(f"the same job compares as another: {statuses}")
    return printed.ended()


@drill("GROUP_POSITIONS_UNSUPPORTED: pass the positions as a file: distcommit migrate import-watermarks", quick=True)
def import_of_a_group_that_the_source_has_not(folder: Path) -> Drilled:
    situation = TablesHere(folder)
    situation.begin("t", "u")
    situation.insert("t", 1, 2, 3, 4)
    situation.insert("u", 1)
    printed = Printed(situation)
    command = f"distcommit migrate import-watermarks {situation.path}"
    printed.refused(f"{command} --kafka-group old", "has no consumer groups")
    (folder / "positions.csv").write_text("dataset,partition,next_offset\nt,,3\n", encoding="utf-8")
    printed.type(f"{command} --from {folder}/positions.csv")
    situation.run(0)
    situation.given.subtract([b"t-1", b"t-2"])  # the other system has published these
    return printed.ended()


@drill(
    "REBUILD_NEEDS_OFFSETS: `distcommit store rebuild --keep-watermarks`, then `distcommit dataset set-watermark`",
    quick=True,
)
def rebuild_of_a_job_without_offsets(folder: Path) -> Drilled:
    situation = TablesHere(folder)
    situation.begin("t")
    situation.insert("t", 1, 2, 3)
    situation.run(0)
    shutil.copytree(folder / "store", folder / "store-backup")
    situation.insert("t", 4, 5)
    situation.run(0)
    shutil.rmtree(folder / "store")
    (folder / "store-backup").rename(folder / "store")
    printed = Printed(situation)
    printed.refused(f"distcommit store rebuild {situation.path}", "a store is rebuilt from the offsets")
    printed.type(f"distcommit store rebuild {situation.path} --keep-watermarks")
    printed.type(f"""distcommit dataset set-watermark {situation.path} t '{{"": 6}}'""")
    situation.insert("t", 6)
    situation.run(0)
    return printed.ended()


def _parquet(situation: Here, name: str, *ids: int) -> None:
    values = [f"{name}-{number}".encode() for number in ids]
    folder = situation.folder / "in" / name
    folder.mkdir(parents=True, exist_ok=True)
    rows = pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array(values, pa.binary())})
    pq.write_table(rows, folder / f"{ids[0]}.parquet")
    situation.given.update(values)


@drill(
    "SOURCE_READER_CHANGED: continues with the current ones; null reads all rows again",
    "SOURCE_READER_CHANGED",
    quick=True,
)
def reader_exchanged(folder: Path) -> Drilled:
    situation = Here(folder)
    _parquet(situation, "t", 1, 2, 3)
    path = {"path": f"{folder}/in/t"}
    source = {"type": "spark", "format": "parquet", "watermark": "id", "lookback": 0}
    situation.write(source={**source, "datasets": {"t": path}}, commit={"buckets": 2})
    situation.run(0)
    _parquet(situation, "t", 4, 5)
    del situation.given[b"t-5"]  # rows of the greatest value wait, as more of them may arrive
    situation.write(source={**source, "datasets": {"t": {**path, "pathGlobFilter": "*.parquet"}}})
    return _resolved(situation, "t could not be planned: rows below the watermark would be left out")


@drill("SOURCE_READER_CHANGED", quick=True)
def reader_exchanged_seen_by_its_command(folder: Path) -> Drilled:
    return reader_exchanged(folder)


@drill("STORED_POSITION_FOREIGN: set the field that it was read by, or set its watermark", quick=True)
def watermark_field_exchanged(folder: Path) -> Drilled:
    """The lists are read by their old field again."""
    with RestServer() as server:
        situation, names = Here(folder), ("old", "new")
        rows = {name: [json.dumps({"id": n, "other": n * 10, "of": name}) for n in range(6)] for name in names}
        for name in names:
            server.put(name, rows=rows[name], field="id", is_number=True, limit=7, exclusive=True)
        paging = {"type": "cursor", "path": "next", "param": "cursor"}
        field = {"field": "id", "type": "integer", "since": "since", "lookback": 0}
        source = {"type": "rest", "url": f"{server.url}/cursor/{{dataset}}", "datasets": names, "retries": 1}
        source = {**source, "records": "data.items", "paging": paging, "watermark": field}
        situation.write(source=source, commit={"buckets": 2})
        situation.run(0)
        situation.write(source={**source, "watermark": {**field, "field": "other"}})
        situation.run(1)
        printed = Printed(situation)
        printed.problem("could not be planned: the stored position is not one of the watermark field")
        situation.write(source=source)
        situation.run(0)
        for name in names:
            situation.given.update(row.encode() for row in rows[name][:-1])
        return printed.ended()
