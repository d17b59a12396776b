"""Names of ratios state the compared figures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.reports.compared import compared
from benchmarks.reports.table import markdown
from benchmarks.results import Results

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize(
    ("question", "ratio", "begins", "has"),
    [
        ("commit", "ours_over_bare_2p", "unequal", "new folders as wholes, durable, against file by file, nothing"),
        ("commit", "ours_over_bare_folders_2p_sync", "equal", "new folders as wholes, durable"),
        ("commit", "ours_not_durable_over_bare_2p", "unequal", "wholes, nothing synced, against file by file, nothing"),
        ("commit", "ours_into_folders_over_bare_into_folders_2p", "unequal", "there, durable, against file by file in"),
        ("commit", "ours_into_folders_over_bare_into_folders_2p_sync", "equal", "into folders that are there, durable"),
        ("commit", "deltalake_one_table_over_ours", "unequal", "no file is moved"),
        ("latency", "requests_ours_into_folders_over_manifest", "unequal", "durable, against file by file, nothing"),
        ("everyday", "requests_ours_over_manifest_on_hdfs_low", "unequal", "into folders that are there, durable"),
    ],
)
def test_ratio_names_compare_two_figures(question: str, ratio: str, begins: str, has: str) -> None:
    assert compared(question, ratio).startswith(f"{begins} work: ")
    assert has in compared(question, ratio)


def test_other_figures_compare_nothing() -> None:
    assert compared("everyday", "sent_to_read_s_disk") == ""
    assert compared("ingest", "throughput_ours_over_spark") == ""


@pytest.mark.parametrize("name", ["commit", "latency", "latency_on_hdfs", "everyday"])
def test_each_stored_ratio_is_printed(name: str) -> None:
    results = msgspec.json.decode((RESULTS / f"{name}.json").read_bytes(), type=Results)
    assert "| what it compares |" in markdown([results])
    of_arms = [ratio for ratio in results.ratios if "_over_" in ratio and not ratio.startswith("replay")]
    assert of_arms
    assert all(compared(results.question, ratio) for ratio in of_arms)
