"""The wait for the first executor of a cluster."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from distcommit.core.errors import TransientError
from distcommit.spark.executor_wait import wait_for_executor


class Cluster:
    """A session whose executor registers at the nth look, or never (0)."""

    def __init__(self, nth: int) -> None:
        self.looks, self.jobs, self.cancelled = 0, 0, list[str]()

        def registered() -> Any:
            self.looks += 1
            return SimpleNamespace(size=lambda: 2 if 0 < nth <= self.looks else 1)

        def count() -> None:
            self.jobs += 1

        self.sparkContext = SimpleNamespace(
            master="spark://h:7077",
            applicationId="app-1",
            getConf=lambda: {"spark.executor.memory": "4g"},
            addJobTag=lambda tag: None,
            cancelJobsWithTag=self.cancelled.append,
            _jvm=SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(ArrayList=list))),
            _jsc=SimpleNamespace(
                sc=lambda: SimpleNamespace(getExecutorMemoryStatus=registered),
                parallelize=lambda rows, slices: SimpleNamespace(count=count),
            ),
        )


def test_executor_that_has_registered_is_not_waited_for() -> None:
    cluster: Any = Cluster(1)
    wait_for_executor(cluster)
    assert (cluster.looks, cluster.jobs) == (1, 0)


def test_wait_is_reported_and_ends_with_the_first_executor(caplog: pytest.LogCaptureFixture) -> None:
    cluster: Any = Cluster(4)
    with caplog.at_level(logging.WARNING):
        wait_for_executor(cluster, report_s=0)
    assert (cluster.jobs, cluster.cancelled) == (1, [])
    assert "the run waits: no executor of Spark has started" in caplog.text
    assert "spark.executor.memory 4g" in caplog.text


def test_cluster_without_executors_is_a_transient_error() -> None:
    cluster: Any = Cluster(0)
    with pytest.raises(TransientError, match=r"application=app-1.*found none after 0 s") as failed:
        wait_for_executor(cluster, limit_s=0)
    assert failed.value.id == "EXECUTORS_UNAVAILABLE"
    assert len(cluster.cancelled) == 1
