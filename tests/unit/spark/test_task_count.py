"""The number of tasks of a run: by the slots that a cluster is configured to have, not by what has registered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distcommit.spark.session_settings import SparkSettings
from distcommit.spark.task_count import configured_slots, partitions_of
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, audit, go, source


def session(master: str, registered: int, **conf: str) -> Any:
    """Return a session with so many registered slots and these settings, whose names lack `spark.`."""
    settings = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    scala = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: 3))
    context = SimpleNamespace(
        master=master,
        defaultParallelism=registered,
        getConf=lambda: settings,
        _jsc=SimpleNamespace(sc=lambda: scala),
    )
    return SimpleNamespace(sparkContext=context)


@pytest.mark.parametrize(
    ("master", "conf", "slots"),
    [
        ("yarn", {}, 2),
        ("yarn", {"executor_instances": "10", "executor_cores": "4"}, 40),
        ("k8s://https://host", {"executor_instances": "10", "executor_cores": "4", "task_cpus": "2"}, 20),
        ("yarn", {"dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "50"}, 50),
        ("yarn", {"dynamicAllocation_enabled": "true", "executor_instances": "10"}, 0),
        ("yarn", {"dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "2147483647"}, 0),
        ("spark://host:7077", {}, 0),
        ("spark://host:7077", {"cores_max": "12"}, 12),
        ("spark://host:7077", {"executor_instances": "3", "executor_cores": "4"}, 12),
    ],
)
def test_slots_are_those_of_all_configured_executors(master: str, conf: dict[str, str], slots: int) -> None:
    assert configured_slots(session(master, 2, **conf).sparkContext.getConf(), master) == slots


@pytest.mark.parametrize(
    ("spark", "wanted", "buckets", "partitions"),
    [
        (session("local[2]", 2), 0, 64, 4),
        (session("local[2]", 2), 0, 1, 2),
        (session("local[2]", 2), 8, 64, 8),
        (session("yarn", 2, executor_instances="10", executor_cores="4"), 0, 512, 80),
        (session("yarn", 2, executor_instances="10", executor_cores="4"), 0, 16, 40),
        (session("spark://host:7077", 24), 0, 512, 48),
        (session("spark://host:7077", 24, task_cpus="4"), 0, 512, 12),
        (session("yarn", 64, executor_instances="10", executor_cores="4", task_cpus="4"), 0, 512, 20),
    ],
)
def test_partitions_use_all_slots(spark: Any, wanted: int, buckets: int, partitions: int) -> None:
    assert partitions_of(spark, SparkSettings(partitions=wanted), buckets) == partitions


def test_fewer_buckets_than_slots_are_reported_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    partitions_of(session("local[8]", 8), SparkSettings(), 4)
    assert "commit.buckets is 4, and Spark has 8 slots" in caplog.text
    assert "distcommit store rebucket" in caplog.text


def test_tasks_without_a_bucket_read_the_work_units_of_others() -> None:
    """One bucket and four tasks: all of them read, and the records are published once."""
    machine, world = Machine(), World(buckets=1, partitions=4)
    data = source(a=[2, 2, 2, 2], b=3, c=1)
    assert go(world, machine, data).succeeded
    assert audit(world, machine).exact
    tasks = {path.rpartition("/")[2].split("-")[0] for path in machine.paths("/job/store/task_states")}
    assert len(tasks) > 1
