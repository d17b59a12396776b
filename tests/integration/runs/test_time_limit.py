"""A converter that never returns, in a whole job: it fails its own dataset, which the error names, and nothing is
lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.core.work_units import TaskOutcome
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.stores.state.task_states import TaskStateTables
from tests.integration.sources.test_files_source import DATASETS, FLOW, NOW_S, Inbox

ROOT = Path(__file__).parents[3]
ENDLESS = {
    "type": "python",
    "class": "tests.integration.parts.breaking_converter:Endless",
    "options": {"number": 5000},
}


def test_endless_converter_fails_only_its_dataset(tmp_path: Path, spark: SparkSession) -> None:
    flow = {**FLOW, "converters": [*FLOW["converters"], ENDLESS]}
    inbox = Inbox(tmp_path, **flow, limits={"construct_seconds": 2})
    inbox.arrive(5)
    stuck = tmp_path / "in" / "d00" / "002.jsonl"
    stuck.write_bytes(b'{"n": 5000}\n')
    os.utime(stuck, (NOW_S,) * 2)
    inbox.sent["d00", b'{"n": 5000}'] += 1
    result = Job.from_file(inbox.path, session=spark).run()
    assert result.totals.datasets_published == DATASETS - 1
    (reason,) = result.reasons.entries
    assert reason.subject == "d00"
    assert "a construct exceeded its time limit [construct=python]; expected at most 2 s for a batch" in reason.text
    assert not list((tmp_path / "output" / "d00").glob("**/*.parquet"))
    mended = yaml.safe_load(inbox.path.read_text())
    mended["converters"].pop()
    inbox.path.write_text(yaml.safe_dump(mended))
    assert Job.from_file(inbox.path, session=spark).run().succeeded
    inbox.assert_exact()


NATIVE = {**ENDLESS, "class": "tests.integration.parts.breaking_converter:Native"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_endless_native_converter_fails_only_its_datasets(tmp_path: Path) -> None:
    """A signal does not interrupt native code: the worker is killed, and the next attempt skips the work unit.

    One task has more such work units than Spark's attempts at a task, so that the ingest job is launched again.
    """
    flow = {**FLOW, "converters": [*FLOW["converters"], NATIVE]}
    spark = {"master": "local[2,2]", "partitions": 1}
    inbox = Inbox(tmp_path, **flow, limits={"construct_seconds": 4}, spark=spark)
    inbox.arrive(5)
    stuck = [f"d{number:02d}" for number in range(3)]
    for dataset in stuck:
        file = tmp_path / "in" / dataset / "002.jsonl"
        file.write_bytes(b'{"n": 5000}\n')
        os.utime(file, (NOW_S,) * 2)
        inbox.sent[dataset, b'{"n": 5000}'] += 1
    ran = command(inbox, "run", "--json")
    result = json.loads(ran.stdout)
    assert result["totals"]["datasets_published"] == DATASETS - len(stuck), ran
    assert (ran.returncode, result["error"]) == (1, ""), ran.stderr
    assert sorted(reason["subject"] for reason in result["reasons"]["entries"]) == stuck
    tables = TaskStateTables(LocalFileSystem(), str(tmp_path / "store"), result["run_id"], 1, range(4))
    states = [state for bucket in range(4) for state in tables.take(bucket, from_start=True)[0]]
    assert sorted(state.dataset_urn for state in states if state.outcome is TaskOutcome.FAILED) == stuck, "each once"
    assert not [path for dataset in stuck for path in (tmp_path / "output" / dataset).glob("**/*.parquet")]
    shown = json.loads(command(inbox, "status", "--json").stdout)
    reasons = {row["dataset"]: row["reason"] for row in shown["datasets"] if row["dataset"] in stuck}
    for dataset in stuck:
        assert f"dataset={dataset}, work_unit=" in reasons[dataset]
        assert "construct=python" in reasons[dataset]
    mended = yaml.safe_load(inbox.path.read_text())
    mended["converters"].pop()
    inbox.path.write_text(yaml.safe_dump(mended))
    assert command(inbox, "run").returncode == 0
    inbox.assert_exact()


def command(
    inbox: Inbox, name: str, *options: str, start_new_session: bool = False
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "distcommit", *name.split(), str(inbox.path), *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=inbox.folder,
        env=env,
        start_new_session=start_new_session,
    )
