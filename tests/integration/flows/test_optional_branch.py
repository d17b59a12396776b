"""A fork with an optional branch whose converter fails, by its command line.

The other branch is committed, and the missing records are error records that are reprocessed once the converter is
repaired.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from distcommit.app.jobs.job import Job
from distcommit.cli.main import app
from tests.jobs.in_commit import killed_in_commit
from tests.jobs.kafka_job import KafkaJob, kafka_job

BREAKING = {
    "type": "python",
    "class": "tests.integration.parts.breaking_converter:Breaking",
    "options": {"number": 7},
}
MENDED: dict[str, Any] = {
    "sink": None,
    "converters": [{"type": "json", "keep_column": False, "fields": {"n": "int64"}}],
    "fork": {"type": "all", "branches": {"good": {}, "late": {"optional": True, "sink": {"format": "avro"}}}},
}
BROKEN = {
    **MENDED,
    "fork": {"type": "all", "branches": {"good": {}, "late": {"optional": True, "converters": [BREAKING]}}},
}
TOPICS = {f"t{n:02d}": 1 for n in range(12)}
RECORDS = 20


def produce(job: KafkaJob, first: int) -> None:
    """Send records to each topic, numbered from `first`."""
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for topic in job.topics:
        for number in range(first, first + RECORDS):
            producer.produce(topic, json.dumps({"n": number}).encode(), partition=0)
    assert producer.flush(30) == 0
    job.produced += RECORDS * len(job.topics)


def numbers(folder: Path, pattern: str) -> Counter[int]:
    """Return the numbers in all files there, read independently of the audit."""
    counts: Counter[int] = Counter()
    for path in (folder / "output").glob(pattern):
        rows = ds.dataset(str(path), format="parquet").to_table()
        values = rows["value"].to_pylist() if "value" in rows.schema.names else None
        counts.update(rows["n"].to_pylist() if values is None else [json.loads(value)["n"] for value in values])
    return counts


def in_branches(job: KafkaJob) -> dict[str, tuple[int, int]]:
    """Return the numbers published in each branch, including error files, and those rejected."""
    audit = job.audit()
    content = {
        branch: (
            sum(row.published + row.rejected for row in audit.partitions if row.branch == branch),
            sum(row.rejected for row in audit.partitions if row.branch == branch),
        )
        for branch in ("good", "late")
    }
    audit.partitions = []
    assert audit.exact, audit
    return content


@pytest.mark.slow
def test_other_branch_is_committed_and_the_repaired_branch_is_reprocessed_once(tmp_path: Path) -> None:
    with kafka_job(tmp_path, TOPICS, **BROKEN, commit={"min_interval_ms": 60_000}) as job:
        produce(job, 0)
        assert killed_in_commit(job.path, job.start), "no run was killed in the middle of its commit"
        first = job.run()
        assert all(row.requests for row in Job.from_file(job.path).report().datasets), "including replayed records"
        all_in, lost = len(TOPICS) * RECORDS, RECORDS * len(TOPICS)
        assert in_branches(job) == {"good": (all_in, 0), "late": (all_in, lost)}
        produce(job, RECORDS)  # without the number that it fails at
        second = job.run()
        report = Job.from_file(job.path).report()
        assert {row.dataset for row in report.datasets if row.requests} == set(job.topics)
        assert sum(row.requests for row in report.datasets) + report.requests_unattributed == report.requests
        assert (second["totals"]["flow"]["failures"], second["totals"]["records_rejected"]) == ([], 0)
        assert in_branches(job) == {"good": (2 * all_in, 0), "late": (2 * all_in, lost)}
        everything = Counter({number: len(TOPICS) for number in range(2 * RECORDS)})
        assert numbers(tmp_path, "t*/good/**/*.parquet") == everything
        assert numbers(tmp_path, "_rejected/*/late/*.parquet") == Counter(dict.fromkeys(range(RECORDS), len(TOPICS)))
        assert first["totals"]["datasets_failed"] == 0

        job.write(fork=MENDED["fork"])
        code, result, errors = job.cli("dataset reprocess", "t00")
        assert (code, result["totals"]["records_published"]) == (0, RECORDS), errors[-3000:]
        assert in_branches(job) == {"good": (2 * all_in, 0), "late": (2 * all_in, lost - RECORDS)}


def test_run_reports_which_branch_failed_where_and_why(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"a": 1, "b": 1}, **BROKEN) as job:
        produce(job, 0)
        result = job.run()
        assert result["totals"]["flow"]["failures"] == [["late", "python", 2]]
        assert {(note["subject"], note["text"]) for note in result["notes"]["entries"]} == {
            (urn, "late: python: ZeroDivisionError: n is 7") for urn in ("a", "b")
        }
        shown = CliRunner().invoke(app, ["status", str(job.path)], env={"COLUMNS": "200"}).output
        assert "failed in 2 work units, whose records were rejected" in " ".join(shown.split())
        explained = CliRunner().invoke(app, ["check", str(job.path), "--offline"], env={"COLUMNS": "200"}).output
        assert "branch late  optional: if it fails, its records go to the error branch" in explained
