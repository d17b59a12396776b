"""Spark repeats a task on another executor if it failed for a reason that may be its node's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException

from distcommit.core.errors import ProcessLostError
from distcommit.engine.committing.recover import RecoverReport, recover_partition
from distcommit.engine.driver.task_reports import Report
from distcommit.engine.run_settings import RunSettings
from distcommit.spark import task_launch
from distcommit.spark.failing_executors import describe_repeated
from distcommit.spark.task_launch import PartitionCall, SparkLaunch
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, source
from tests.unit.spark.test_task_launch import FailingSession

_FAILURE = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\nOSError: [Errno 28]\n\n"
    "The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
    "distcommit.engine.node_failures.NodeFailedError: OSError: [Errno 28] No space left on device\n\n\tat org.apache"
)


@dataclass
class ClusterSession(FailingSession):
    """A session on a cluster whose next jobs fail with these errors; all others return one report."""

    master: str = "spark://host:7077"
    errors: list[Exception] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    conf: dict[str, str] = field(default_factory=dict)
    failures: list[tuple[str, str, str]] = field(default_factory=list)

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's
        return self.conf

    def mapPartitionsWithIndex(self, function: Any) -> ClusterSession:  # noqa: N802 - Spark's
        self.calls.append(function.__self__.hands_back)
        return self

    def collect(self) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return [msgspec.msgpack.encode(RecoverReport(Report()))]

    @property
    def _jsc(self) -> Any:
        attempts = [
            SimpleNamespace(
                host=lambda host=host: host,
                executorId=lambda executor=executor: executor,
                errorMessage=lambda text=text: SimpleNamespace(isDefined=lambda: bool(text), get=lambda: text),
            )
            for host, executor, text in self.failures
        ]
        listed = SimpleNamespace(size=lambda: len(attempts), apply=attempts.__getitem__)
        job = SimpleNamespace(get=lambda: SimpleNamespace(stageIds=lambda: [7]))
        failed = SimpleNamespace(numFailedTasks=lambda: sum(bool(text) for _, _, text in self.failures))
        tracker = SimpleNamespace(getJobIdsForTag=lambda tag: [3, 4], getJobInfo=lambda number: job)
        scala = SimpleNamespace(
            listenerBus=lambda: SimpleNamespace(waitUntilEmpty=lambda milliseconds: None),
            statusTracker=lambda: tracker,
            statusStore=lambda: SimpleNamespace(
                taskList=lambda stage, attempt, most: listed, lastStageAttempt=lambda stage: failed
            ),
        )
        return SimpleNamespace(sc=lambda: scala)


def launched(session: Any) -> list[RecoverReport]:
    return SparkLaunch(session)(recover_partition, World().begin(Machine(), source()), 1, RecoverReport)


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("spark://host:7077", {}, 3),
        ("yarn", {"spark.task.maxFailures": "2"}, 1),
        ("local[2,4]", {}, 0),
        ("local-cluster[2,1,1024]", {}, 3),
    ],
)
def test_all_attempts_but_the_last_are_handed_back_on_a_cluster(
    master: str, conf: dict[str, str], expected: int
) -> None:
    session = ClusterSession(PySparkException("unused"), master=master, conf=conf)
    launched(session)
    assert session.calls == [expected]


def test_job_runs_again_without_handing_back_if_no_other_executor_is_left() -> None:
    session = ClusterSession(PySparkException("unused"), errors=[PySparkException(f"cannot run anywhere\n{_FAILURE}")])
    launched(session)
    assert session.calls == [3, 0]


def test_dead_worker_is_not_a_failure_of_the_node() -> None:
    session = ClusterSession(PySparkException("unused"), errors=[PySparkException("Python worker exited unexpectedly")])
    with pytest.raises(ProcessLostError):
        launched(session)
    assert session.calls == [3]


@pytest.mark.parametrize(("attempt", "expected"), [(0, True), (2, True), (3, False)])
def test_only_attempts_that_spark_repeats_hand_back(
    monkeypatch: pytest.MonkeyPatch, attempt: int, expected: bool
) -> None:
    monkeypatch.setattr(task_launch, "_attempt", lambda: attempt)
    received: list[RunSettings] = []

    def function(settings: RunSettings, partition: int) -> Report:
        received.append(settings)
        return Report()

    call: Callable[..., Iterator[bytes]] = PartitionCall(function, World().begin(Machine(), source()), 3).in_task
    list(call(0, ()))
    assert (received[0].hands_back, received[0].after_death) == (expected, attempt > 0)


def test_note_names_host_executor_and_cause() -> None:
    failures = [
        ("10.0.0.7", "4", _FAILURE),
        ("10.0.0.7", "4", _FAILURE),
        ("10.0.0.8", "5", "ModuleNotFoundError: No module named 'distcommit'"),
        ("10.0.0.9", "6", "Python worker exited unexpectedly"),
        ("10.0.0.9", "6", ""),
    ]
    session: Any = ClusterSession(PySparkException("unused"), failures=failures)
    notes = describe_repeated(session, "run")
    assert [note.subject for note in notes] == ["host 10.0.0.7, executor 4", "host 10.0.0.8, executor 5"]
    first, second = notes
    assert first.text.startswith("2 task attempts failed: OSError: [Errno 28] No space left on device. Their work was")
    assert "No module named 'distcommit'" in second.text
    assert "check the disks and the packages of this host" in first.text
    assert launched(session)[0].report.notes == notes
