"""Failed Spark jobs: an error with a remedy, or a run that commits the records that were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from distcommit.core.errors import ConfigurationError, ProcessLostError
from distcommit.engine.committing.recover import RecoverReport, recover_partition
from distcommit.engine.driver.launch_interface import JobFailedError
from distcommit.engine.driver.run import run
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.spark.job_failure_texts import describe_death, failure_text
from distcommit.spark.task_launch import SparkLaunch
from tests.simulation.world import World, launch_here
from tests.unit.engine.driver.machines import Machine, audit, source


@dataclass
class FailingSession:
    """A session with its context and RDD, whose jobs fail with the given error."""

    error: Exception
    master: str = "local[2]"
    pythonExec: str = "/opt/python"  # noqa: N815 - Spark's
    tags: list[str] = field(default_factory=list)
    properties: dict[str, str | None] = field(default_factory=dict)
    shown: list[str | None] = field(default_factory=list)

    @property
    def sparkContext(self) -> FailingSession:  # noqa: N802 - Spark's
        return self

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's
        self.tags.remove(tag)

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802 - Spark's
        self.properties[name] = value
        self.shown.append(value)

    def parallelize(self, numbers: range, tasks: int) -> FailingSession:
        return self

    def mapPartitionsWithIndex(self, function: object) -> FailingSession:  # noqa: N802 - Spark's
        return self

    def collect(self) -> None:
        raise self.error


class JobAbortedError(Py4JJavaError):  # type: ignore[misc]  # py4j is not typed
    """The error that Spark raises for a job that lost its executors, without a JVM."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)

    def __str__(self) -> str:
        return str(self.args[0])


_TRACE = 'Traceback (most recent call last):\n  File "worker_util.py", line 75, in read_command\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{_TRACE}ModuleNotFoundError: No module named 'distcommit'", "No module named 'distcommit'"),
        (f"{_TRACE}ModuleNotFoundError: No module named 'distcommit.spark'", "No module named 'distcommit.spark'"),
        (f"{_TRACE}ModuleNotFoundError: No module named 'msgspec'", "No module named 'msgspec'"),
        (
            f"{_TRACE}AttributeError: Can't get attribute 'RunSettings' on"
            " <module 'distcommit.engine.run_settings' (x)>",
            "Can't get attribute 'RunSettings' on <module 'distcommit.engine.run_settings'",
        ),
        (
            'Job aborted: java.io.IOException: Cannot run program "/nowhere": error=2, No such file or directory\n\tat',
            'Cannot run program "/nowhere": error=2, No such file or directory',
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark"
            " cannot run with different minor versions.",
            "Python in worker has different version: 3.12 than that in driver: 3.11",
        ),
        (
            "SparkException: \nError from python worker:\n  /usr/bin/python3: No such module pyspark.daemon\nPATH was",
            "Error from python worker: /usr/bin/python3: No such module pyspark.daemon",
        ),
    ],
)
@pytest.mark.parametrize("kind", [PySparkException, JobAbortedError])
def test_unsuitable_executor_python_is_named(kind: Any, text: str, problem: str) -> None:
    session: Any = FailingSession(kind(text))
    with pytest.raises(ConfigurationError) as caught:
        SparkLaunch(session)(recover_partition, World().begin(Machine(), source()), 1, RecoverReport)
    assert (caught.value.found, caught.value.ids["python"]) == (problem, "/opt/python")
    assert "spark.submit.pyFiles" in caught.value.todo


def test_spark_shows_job_run_and_phase_in_the_jobs_pool_and_gets_the_callers_properties_back() -> None:
    session: Any = FailingSession(PySparkException("no"), properties={"spark.job.description": "of the caller"})
    with pytest.raises(JobFailedError):
        SparkLaunch(session)(recover_partition, World().begin(Machine(), source()), 1, RecoverReport)
    assert session.shown == ["job: run of epoch 2, recover", "recover", "job", "of the caller", None, None]


_ABORTED = (
    "An error occurred while calling o123.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage"
    " failure: Task 3 in stage 1.0 failed 4 times, most recent failure: Lost task 3.0 in stage 1.0 (TID 5) (10.0.0.7"
    " executor 2): "
)
_AT = "\n\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1136)\n"
_DIED: dict[str, tuple[str, str]] = {
    "a Python worker": (
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'spark.sql...'",
        "a Python worker died; Spark reports no reason: a signal",
    ),
    "an executor, killed": (
        "ExecutorLostFailure (executor 2 exited caused by one of the tasks) Reason: Command exited with code 137",
        "executor 2 died: Command exited with code 137 (SIGKILL, as by the kernel or a resource manager when memory",
    ),
    "an executor, of which nothing is said": (
        "ExecutorLostFailure (executor 2 exited unrelated to the running tasks)",
        "executor 2 died: Spark reports no reason",
    ),
    "a JVM": ("java.lang.OutOfMemoryError: Java heap space", "an executor's JVM ran out of memory: Java heap space"),
    "Python's memory": (f"PythonException: {_TRACE}MemoryError", "a Python worker ran out of memory"),
}


@pytest.mark.parametrize(("cause", "expected_error"), _DIED.values(), ids=_DIED)
@pytest.mark.parametrize("kind", [PySparkException, JobAbortedError])
def test_dead_process_is_reported_with_its_task_not_as_a_python_call(
    kind: Any, cause: str, expected_error: str
) -> None:
    session: Any = FailingSession(kind(f"{_ABORTED}{cause}{_AT}"))
    with pytest.raises(ProcessLostError) as caught:
        SparkLaunch(session)(recover_partition, World().begin(Machine(), source()), 1, RecoverReport)
    assert caught.value.found.startswith(f"task 3 of stage 1.0 on 10.0.0.7 failed 4 times: {expected_error}")
    assert "calling o123" not in str(caught.value)
    machine, world = Machine(), World()

    def launch(function: Any, settings: Any, tasks: int, kind: Any) -> Any:
        reports = launch_here(function, settings, tasks, kind)
        if function is ingest_partition:
            raise caught.value
        return reports

    result = run(launch, world.begin(machine, source(a=3)))
    assert (result.totals.records_published, result.error) == (3, f"ingest: {caught.value.found}")


@pytest.mark.parametrize(
    ("cause", "expected_error"),
    [
        (f"org.apache.spark.api.python.PythonException: {_TRACE}ValueError: a bug{_AT}", "ValueError: a bug"),
        ("java.io.IOException: no disk", "Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times, most"),
    ],
)
def test_other_job_failures_name_task_and_cause(cause: str, expected_error: str) -> None:
    text = failure_text(_ABORTED + cause)
    assert text.startswith(f"task 3 of stage 1.0 on 10.0.0.7 failed 4 times: {expected_error}")
    assert describe_death(_ABORTED + cause) == ""


@pytest.mark.parametrize("error", [PySparkException("some other end"), JobAbortedError("some other end")])
def test_any_other_job_failure_has_one_line_and_keeps_its_full_text(error: Exception) -> None:
    session: Any = FailingSession(error)
    with pytest.raises(JobFailedError) as caught:
        SparkLaunch(session)(recover_partition, World().begin(Machine(), source()), 1, RecoverReport)
    assert (caught.value.found, str(caught.value)) == ("some other end", str(error))
    assert caught.value.__cause__ is error
    assert session.tags == []  # later launches of the thread do not belong to this run


def test_error_that_is_not_a_job_failure_is_unchanged() -> None:
    error = KeyError("x")
    session: Any = FailingSession(error)
    with pytest.raises(KeyError) as caught:
        SparkLaunch(session)(recover_partition, World().begin(Machine(), source()), 1, RecoverReport)
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [
        JobFailedError("Job aborted", "aborted"),
        ProcessLostError("a job failed", found="aborted"),
        ConfigurationError("aborted"),
    ],
)
def test_records_read_by_a_failed_ingest_job_are_committed(error: Exception) -> None:
    """The job ended by a task's Python code, by the loss of executors, or by a node without the package."""
    machine, world = Machine(), World()

    def launch(function: Any, settings: Any, tasks: int, kind: Any) -> Any:
        reports = launch_here(function, settings, tasks, kind)
        if function is ingest_partition:
            raise error
        return reports

    result = run(launch, world.begin(machine, source(a=3)))
    is_own = isinstance(error, ConfigurationError)
    assert result.totals.records_published == 3
    assert result.error == ("ingest: SETTINGS_INVALID: aborted" if is_own else "ingest: aborted")
    assert audit(world, machine).exact
