"""A cluster with one bad node of two: every dataset is published in one run; at size: `python -m tests.cluster`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.bad_nodes import FAULTS_OF_NODES, BadNodesResult, Drill, Fault, run_bad_nodes
from tests.servers.spark import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("fault", FAULTS_OF_NODES)
def test_every_dataset_is_published_in_one_run_although_a_node_is_bad(
    tmp_path: Path, spark_cluster: SparkCluster, fault: Fault
) -> None:
    """The node's mount of the job's folders is read-only or missing, or the node lacks a package of a converter."""
    result, drill = BadNodesResult(20), Drill(tmp_path, spark_cluster, fault, 20)
    drill.break_node()
    try:
        drill.produce()
        run = drill.finish(result)
    finally:
        drill.repair_node()
    drill.count(result)
    assert result.is_exact, result
    notes = [note for note in run["notes"]["entries"] if note["subject"].startswith("host 127.0.0.3, executor ")]
    cause = {
        "read_only": "Read-only file system",
        "package": "No module named 'package_of_the_nodes'",
        "hidden": "STORE_NOT_VISIBLE: an executor does not see the store",
    }[fault]
    assert cause in notes[0]["text"], run["notes"]
    assert "check the disks and the packages of this host" in notes[0]["text"]


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("faults", [("poison",), FAULTS_OF_NODES], ids="-".join)
def test_killed_runs_publish_everything_once(tmp_path: Path, faults: tuple[Fault, ...]) -> None:
    result = run_bad_nodes(tmp_path, lambda text: None, faults=faults, datasets=12, kills=3, seed=1)
    assert result.is_exact, result
