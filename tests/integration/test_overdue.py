"""A converter that never ends, in a whole job: it fails its dataset alone, by name, and nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import yaml
from pyspark.sql import SparkSession

from distcommit import Job
from tests.integration.test_files_source import DATASETS, FLOW, NOW_S, Inbox

ENDLESS = {"type": "python", "class": "tests.integration.breaking_converter:Endless", "options": {"number": 5000}}


def test_a_converter_that_never_ends_fails_its_dataset_alone(tmp_path: Path, spark: SparkSession) -> None:
    flow = {**FLOW, "converters": [*FLOW["converters"], ENDLESS]}
    inbox = Inbox(tmp_path, **flow, limits={"construct_seconds": 2})
    inbox.arrive(5)
    stuck = tmp_path / "in" / "d00" / "002.jsonl"
    stuck.write_bytes(b'{"n": 5000}\n')
    os.utime(stuck, (NOW_S,) * 2)
    inbox.sent["d00", b'{"n": 5000}'] += 1
    result = Job.from_file(inbox.path, session=spark).run()
    assert result.totals.datasets_published == DATASETS - 1
    (reason,) = result.totals.reasons
    assert reason.subject == "d00"
    assert "a construct does not end [construct=python]; expected at most 2 s for a batch" in reason.text
    assert not list((tmp_path / "output" / "d00").glob("**/*.parquet"))
    mended = yaml.safe_load(inbox.path.read_text())
    mended["converters"].pop()
    inbox.path.write_text(yaml.safe_dump(mended))
    assert Job.from_file(inbox.path, session=spark).run().succeeded
    inbox.assert_exact()
