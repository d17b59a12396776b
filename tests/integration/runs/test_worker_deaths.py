"""A record that kills the Python worker, in whole jobs by the command: its dataset fails, and all others are published
in the same run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from tests.integration.runs.test_time_limit import command
from tests.integration.sources.test_files_source import DATASETS, FLOW, NOW_S, Inbox

KILLING = {
    "type": "python",
    "class": "tests.integration.parts.breaking_converter:Killing",
    "options": {"number": 5000},
}
KILLERS = ["d00", "d07"]


def kill_by(inbox: Inbox, datasets: list[str]) -> None:
    """Put a record that kills its worker into these datasets."""
    for dataset in datasets:
        file = inbox.folder / "in" / dataset / "killer.jsonl"
        file.write_bytes(b'{"n": 5000}\n')
        os.utime(file, (NOW_S,) * 2)
        inbox.sent[dataset, b'{"n": 5000}'] += 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("master", ["local[2]", "local[2,4]"])
def test_record_that_kills_its_worker_fails_only_its_dataset(tmp_path: Path, master: str) -> None:
    """Spark tries a task once with `local[2]`, and four times with `local[2,4]`."""
    inbox = Inbox(tmp_path, **{**FLOW, "converters": [*FLOW["converters"], KILLING]}, spark={"master": master})
    inbox.arrive(5)
    kill_by(inbox, KILLERS)
    for failed_runs in (1, 2):
        inbox.arrive(5)
        ran = command(inbox, "run", "--json")
        result = json.loads(ran.stdout)
        assert (ran.returncode, result["error"]) == (1, ""), ran.stderr
        assert result["totals"]["datasets_published"] == DATASETS - len(KILLERS)
        assert sorted(reason["subject"] for reason in result["reasons"]["entries"]) == KILLERS
        shown = json.loads(command(inbox, "status", "--json").stdout)
        rows = {row["dataset"]: row for row in shown["datasets"] if row["dataset"] in KILLERS}
        for dataset in KILLERS:
            assert f"dataset={dataset}, work_unit=" in rows[dataset]["reason"]
            assert "a worker died twice while it read a work unit" in rows[dataset]["reason"]
            assert rows[dataset]["failed_runs"] == failed_runs
        assert "WORKER_DIED" in {problem["id"] for problem in shown["problems"]}
    repaired = yaml.safe_load(inbox.path.read_text())
    repaired["converters"].pop()
    inbox.path.write_text(yaml.safe_dump(repaired))
    assert command(inbox, "run").returncode == 0
    inbox.assert_exact()
    assert not list((tmp_path / "store" / "reading").rglob("*.json"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_record_that_kills_the_whole_run_keeps_others_waiting_for_two_runs_at_most(tmp_path: Path) -> None:
    """All processes of a run die with the worker, as in a container. The second run notes what it reads, the third
    reads the suspect alone at its end, and the fourth records its failure.
    """
    killing = {**KILLING, "options": {"number": 5000, "session": True}}
    inbox = Inbox(tmp_path, **{**FLOW, "converters": [*FLOW["converters"], killing]}, spark={"master": "local[2]"})
    inbox.arrive(5)
    kill_by(inbox, KILLERS[:1])
    codes = [command(inbox, "run", "--json", start_new_session=True).returncode for _ in range(3)]
    assert codes == [-signal.SIGKILL] * 3
    ran = command(inbox, "run", "--json", start_new_session=True)
    assert ran.returncode == 1, ran
    result = json.loads(ran.stdout)
    assert not result["error"]
    assert [reason["subject"] for reason in result["reasons"]["entries"]] == KILLERS[:1]
    assert (
        len({path.parts[len(tmp_path.parts) + 1] for path in (tmp_path / "output").rglob("*.parquet")}) == DATASETS - 1
    )
    repaired = yaml.safe_load(inbox.path.read_text())
    repaired["converters"].pop()
    inbox.path.write_text(yaml.safe_dump(repaired))
    assert command(inbox, "run").returncode == 0
    inbox.assert_exact()
