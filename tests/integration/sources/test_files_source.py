"""Files as a source, by the command line: each row of each file is published once, in spite of kills."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.core.errors import ConfigurationError
from tests.jobs.in_commit import killed_in_commit, run_of

DATASETS = 20
NOW_S = 1_700_000_000
FLOW: dict[str, Any] = {
    "on_rejected": "divert",
    "converters": [{"type": "json", "keep_column": True, "fields": {"n": "int64"}}],
    "row_checkers": [{"type": "range", "column": "n", "min": 0}],
}


class Inbox:
    """Folders of input files, their expected lines, and the job that reads them."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        self.folder, self.path = folder, folder / "job.yaml"
        self.sent: Counter[tuple[str, bytes]] = Counter()
        self.chance, self.files = random.Random(7), 0
        source = {
            "type": "files",
            "paths": [f"{folder}/in/{{dataset}}/*.jsonl", f"{folder}/in/{{dataset}}/*.jsonl.gz"],
            "format": "jsonl",
            "bytes_per_work_unit": 1 << 20,
        }
        job = {
            "job": "files",
            "source": {**source, **sections.pop("source", {})},
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 4, **sections.pop("commit", {})},
            "spark": {"master": "local[2,4]"},
            **sections,
        }
        self.path.write_text(yaml.safe_dump(job))

    def arrive(self, rows: int, late: int = 0) -> None:
        """Add a file for each dataset, some with equal times. `late`: seconds by which it is older than the previous
        files."""
        self.files += 1
        for dataset in range(DATASETS):
            name = f"d{dataset:02d}"
            lines = []
            for _ in range(rows):
                number = self.chance.randrange(-3, 1000)
                lines.append(json.dumps({"n": number, "id": self.chance.random()}).encode())
            self.sent.update((name, line) for line in lines)
            data = b"".join(line + b"\n" for line in lines)
            path = self.folder / "in" / name / f"{self.files:03d}.jsonl{'.gz' * (self.files % 2)}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(data) if self.files % 2 else data)
            os.utime(path, (NOW_S + self.files // 2 - late,) * 2)

    def published(self) -> Counter[tuple[str, bytes]]:
        """Return the lines in the output and in the error files by dataset, read independently of the audit."""
        lines: Counter[tuple[str, bytes]] = Counter()
        for path in (self.folder / "output").rglob("*.parquet"):
            parts = path.relative_to(self.folder / "output").parts
            rows = ds.dataset(str(path)).to_table()
            lines.update((parts[parts[0] == "_rejected"], value) for value in rows["value"].to_pylist())
        return lines

    def assert_exact(self) -> None:
        assert self.published() == self.sent
        audit = Job.from_file(self.path).audit(deep=True)
        rows, audit.partitions = audit.partitions, []
        assert audit.exact, audit
        assert sum(row.published + row.rejected for row in rows) == self.sent.total()


def test_arriving_files_are_published_once_and_a_faulty_dataset_stops_alone(
    tmp_path: Path, spark: SparkSession
) -> None:
    inbox = Inbox(tmp_path, **FLOW, source={"bytes_per_work_unit": 1})
    for rows in (20, 0, 30):
        inbox.arrive(rows)
    first = Job.from_file(inbox.path, session=spark).run()
    assert first.succeeded
    assert first.totals.datasets_published == DATASETS
    inbox.assert_exact()
    inbox.arrive(10, late=100)
    bad = tmp_path / "in" / "d00" / "999.jsonl.gz"
    bad.write_bytes(gzip.compress(b"1\n")[:-4])
    os.utime(bad, (NOW_S + 50,) * 2)
    changed = tmp_path / "in" / "d01" / "001.jsonl.gz"
    was = changed.read_bytes()
    changed.write_bytes(was + was)
    second = Job.from_file(inbox.path, session=spark).run()
    assert second.totals.datasets_published == DATASETS - 2
    reasons = {reason.subject: reason.text for reason in second.reasons.entries}
    assert set(reasons) == {"d00", "d01"}
    assert str(bad) in reasons["d00"]
    assert "d01/001.jsonl.gz" in reasons["d01"]
    bad.unlink()
    changed.write_bytes(was)
    os.utime(changed, (NOW_S,) * 2)
    third = Job.from_file(inbox.path, session=spark).run()
    assert third.totals.datasets_published == 2
    inbox.assert_exact()
    assert Job.from_file(inbox.path, session=spark).run().totals.datasets_published == 0


def test_rebuilt_store_does_not_read_files_again(tmp_path: Path, spark: SparkSession) -> None:
    inbox = Inbox(tmp_path)
    inbox.arrive(5)
    assert Job.from_file(inbox.path, session=spark).run().succeeded
    row = next(row for row in Job.from_file(inbox.path).status().datasets if row.dataset == "d00")
    assert row.extract is not None
    assert (row.extract.namespace, row.extract.table, row.extract.keys) == ("files", "d00", ("_partition", "_offset"))
    watermark = row.positions
    (tmp_path / "store").rename(tmp_path / "lost")
    Job.from_file(inbox.path).rebuild()
    inbox.arrive(5)
    result = Job.from_file(inbox.path, session=spark).run()
    assert result.totals.datasets_published == 0
    assert "which of its files are read" in result.reasons.entries[0].text
    Job.from_file(inbox.path).set_watermark("d00", watermark)
    assert Job.from_file(inbox.path, session=spark).run().totals.datasets_published == 1


@pytest.mark.slow
def test_runs_killed_in_mid_commit_publish_each_row_once(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **FLOW, commit={"min_interval_ms": 60_000})
    kills = 0
    for number, late in enumerate((0, 0, 50)):
        inbox.arrive(200, late)
        inbox.arrive(100)
        kills += killed_in_commit(inbox.path, partial(run_of, inbox.path, f"run-{number}"))
    inbox.arrive(50)
    command = [sys.executable, "-m", "distcommit", "run", str(inbox.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert kills, "no run was killed in the middle of its commit"
    inbox.assert_exact()


POLICIES = [
    {"match": "fixed_settings", "evolution": "pin"},
    {"match": "stops", "evolution": "fail"},
]


def columns(folder: Path) -> set[tuple[str, ...]]:
    """Return the name and type of the columns in each file of a dataset."""
    schemas = [pq.read_schema(path) for path in folder.rglob("*.parquet")]
    return {tuple(sorted(f"{f.name} {f.type}" for f in schema if f.name[0] != "_")) for schema in schemas}


def _kill_and_run_again(path: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Kill a run in the middle of its commit and return the exit code of the next one."""
    assert killed_in_commit(path, partial(run_of, path, out.name)), "no run was killed in the middle of its commit"
    command = [sys.executable, "-m", "distcommit", "run", str(path), "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.slow
def test_file_columns_follow_their_dataset_s_schema_policy_in_spite_of_kills(
    tmp_path: Path, spark: SparkSession
) -> None:
    parquet = {"format": "parquet", "paths": [f"{tmp_path}/in/{{dataset}}/*.parquet"]}
    inbox = Inbox(
        tmp_path,
        source=parquet,
        converters=[{"type": "schema", "datasets": POLICIES}],
        on_rejected="divert",
        commit={"min_interval_ms": 60_000},
    )

    def arrive(dataset: str, **values: Any) -> None:
        inbox.files += 1
        path = tmp_path / "in" / dataset / f"{inbox.files:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({name: pa.array([value] * 10) for name, value in values.items()}), path)
        os.utime(path, (NOW_S + inbox.files,) * 2)

    names = ("evolves", "diverts", "fixed_settings", "stops")
    for name in names:
        arrive(name, id=1, name="x")
    assert Job.from_file(inbox.path, session=spark).run().succeeded
    for name in ("evolves", "fixed_settings", "stops"):
        arrive(name, id=2, new=True)
    arrive("diverts", id="2", name="x")
    for number in range(30):  # so that the commit takes long enough
        arrive(f"more-{number}", id=1, name="x")
    done = _kill_and_run_again(inbox.path, tmp_path / "run")
    assert done.returncode != 0
    reasons = {reason["subject"]: reason["text"] for reason in json.loads(done.stdout)["reasons"]["entries"]}
    assert set(reasons) == {"stops"}
    assert "evolution is fail" in reasons["stops"]
    assert "found new is new; name is missing" in reasons["stops"]
    audit = Job.from_file(inbox.path).audit(deep=True)
    assert (audit.exact, audit.records, audit.rejected) == (True, 34 * 10 + 20, 10)
    first = ("id int64", "name string")
    assert {name: columns(tmp_path / "output" / name) for name in names} == {
        "evolves": {first, ("id int64", "new bool")},
        "diverts": {first},
        "fixed_settings": {first},
        "stops": {first},
    }
    rejected = ds.dataset(str(tmp_path / "output" / "_rejected" / "diverts")).to_table()
    assert set(rejected["error_reason"].to_pylist()) == {
        "not compatible with earlier records: id is string here, and int64 before"
    }
    versions = {row.dataset: len(row.schemas["schema"]) for row in Job.from_file(inbox.path).status().datasets}
    assert {name: versions[name] for name in names} == {"evolves": 2, "diverts": 1, "fixed_settings": 1, "stops": 1}


@pytest.mark.long
@pytest.mark.slow
def test_unreadable_csv_rows_are_rejected_once_in_spite_of_kills(tmp_path: Path) -> None:
    """One of ten rows has an extra column, one has a value that is not a number, and one file ends within a quote."""
    csv = {"format": "csv", "paths": [f"{tmp_path}/in/{{dataset}}/*.csv"]}
    cast = {"type": "cast", "columns": {"n": "int64"}}
    inbox = Inbox(tmp_path, source=csv, converters=[cast], on_rejected="divert", commit={"min_interval_ms": 60_000})
    names = [f"d{number:02d}" for number in range(30)]
    rows = [[f"{n}", "a\nb"] if n % 10 else [f"{n}", "x", "y"] for n in range(100)]
    rows = [row if n % 10 != 5 else ["five", row[1]] for n, row in enumerate(rows)]
    text = "\n".join(["n,t", *(",".join(f'"{value}"' for value in row) for row in rows)]) + '\n100,"open\n'
    for name in names:
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "a.csv").write_text(text)
        os.utime(tmp_path / "in" / name / "a.csv", (NOW_S,) * 2)
    done = _kill_and_run_again(inbox.path, tmp_path / "run")
    assert done.returncode == 0, done.stderr[-3000:]
    audit = Job.from_file(inbox.path).audit(deep=True)
    assert (audit.exact, audit.records, audit.rejected) == (True, 30 * 80, 30 * 21)
    for name in names:
        good = [
            row for path in (tmp_path / "output" / name).rglob("*.parquet") for row in pq.read_table(path).to_pylist()
        ]
        assert sorted((row["n"], row["t"], row["_row"]) for row in good) == [
            (n, "a\nb", n) for n in range(100) if n % 10 not in (0, 5)
        ]
        beside = (tmp_path / "output" / "_rejected" / name).rglob("*.parquet")
        errors = sorted(
            (row for path in beside for row in pq.read_table(path).to_pylist()), key=lambda row: row["_row"]
        )
        unparsed = {row["_row"]: row["_unparsed"] for row in errors if row["error_construct"] == "source"}
        assert unparsed == {n: f'"{n}","x","y"'.encode() for n in range(0, 100, 10)} | {100: b'100,"open\n'}
        assert [(row["_row"], row["n"]) for row in errors if row["error_construct"] == "cast"] == [
            (n, "five") for n in range(5, 100, 10)
        ]


@pytest.mark.slow
def test_partly_read_file_is_continued_and_not_confused_with_a_namesake_in_spite_of_kills(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Two hosts write `app.jsonl` into folders of their own.

    A run publishes the readable part of one file (`partial`), and the next run is killed while it commits the rest.
    """
    hosts = [f"{tmp_path}/in/{host}/{{dataset}}/*.jsonl" for host in ("host1", "host2")]
    broken = {
        "type": "python",
        "class": "tests.integration.parts.breaking_converter:Breaking",
        "options": {"number": 5000},
    }
    flow: dict[str, Any] = {"on_rejected": "divert", "converters": [FLOW["converters"][0], broken]}
    commit = {"policy": "partial", "min_interval_ms": 60_000}
    inbox = Inbox(tmp_path, **flow, source={"paths": hosts}, commit=commit)

    def arrive(host: str, dataset: str, numbers: range, at: int) -> None:
        lines = [json.dumps({"n": n, "host": host, "pad": "x" * 2000}).encode() for n in numbers]
        inbox.sent.update((dataset, line) for line in lines)
        path = tmp_path / "in" / host / dataset / "app.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        os.utime(path, (NOW_S + at,) * 2)

    (tmp_path / "in" / "host1").mkdir(parents=True)
    arrive("host2", "d", range(6000, 11_100), at=0)
    assert Job.from_file(inbox.path, session=spark).run().succeeded
    arrive("host1", "d", range(5100), at=1)
    partly = Job.from_file(inbox.path, session=spark).run()
    assert [(reason.subject, reason.kind) for reason in partly.reasons.entries] == [("d", "partly failed")]
    assert 5100 < inbox.published().total() < 5100 + 5000
    for number in range(200):  # so that the commit takes long enough
        arrive("host1", f"more-{number}", range(3), at=2)
    job = yaml.safe_load(inbox.path.read_text())
    job["converters"] = [FLOW["converters"][0]]
    inbox.path.write_text(yaml.safe_dump(job))
    done = _kill_and_run_again(inbox.path, tmp_path / "run")
    assert done.returncode == 0, done.stderr[-3000:]
    inbox.assert_exact()
    swapped = [f"source.paths={hosts[::-1]}"]
    others = ["sink.publish=replace_partitions", "sink.partition_by={field: n}", "commit.policy=full"]
    for settings, what in ((swapped, r"source\.paths \(folders\)"), (others, r"sink\.partition_by")):
        with pytest.raises(ConfigurationError, match=what):
            Job.from_file(inbox.path, settings, session=spark).run()
    inbox.assert_exact()
