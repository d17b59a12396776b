"""Launch of executor functions as Spark jobs: one task per partition, no shuffle. Each task returns a report."""

from __future__ import annotations

import functools
import gc
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Generic

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import TaskContext
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import SparkSession

from distcommit.core.errors import ConfigurationError, ProcessLostError, TransientError
from distcommit.core.redaction import redacted
from distcommit.core.support.decoding import from_msgpack
from distcommit.engine.driver.launch_interface import JobFailedError, Result
from distcommit.engine.run_settings import RunSettings
from distcommit.spark.failed_jobs import describe_death, failure_text

_JOB_FAILURES = (PySparkException, Py4JJavaError)
"""Exceptions of a failed Spark job. Py4JJavaError is raised for failures outside Python code, such as lost
executors.
"""

_DESCRIPTION, _CALL_SITE = "spark.job.description", "callSite.short"
"""Thread-local properties with the texts that Spark's web pages show for a job."""
_POOL = "spark.scheduler.pool"
"""Thread-local property with the pool of Spark's fair scheduler; other schedulers ignore it."""

_CAN_NOT_RUN = re.compile(
    r"No module named '[\w.]+'|Can't get attribute '\w+' on <module 'distcommit[\w.]*'"
    r"|Cannot run program \"[^\"]*\"[^\n]*|Python in worker has different version[^\n]*?(?=, PySpark|\n|$)"
    r"|\w+ >= [\d.]+ must be installed[^\n]*|Error from python worker:\s*[^\n]*"
)


@dataclass(frozen=True, slots=True)
class PartitionCall(Generic[Result]):
    """A module-level executor function and its run, to be called with a partition number in a Spark task.

    Attributes:
        function: the executor function.
        settings: the run.
    """

    function: Callable[[RunSettings, int], Result]
    settings: RunSettings

    def in_task(self, partition: int, empty: Iterable[object]) -> Iterator[bytes]:
        """Call the function for one partition of an empty RDD, and yield the encoded report."""
        del empty
        _reduce_garbage_collection()
        _log_at_info()
        settings = replace(self.settings, after_death=True) if _is_retry() else self.settings
        with _redacted_errors():
            report = self.function(settings, partition)
        yield msgspec.msgpack.encode(report)

    def in_arrow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call the function for each row, which is a partition number, and yield a row with the encoded report."""
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"report": [*self.in_task(partition, ())]})


def _is_retry() -> bool:
    """Return whether an earlier attempt at this Spark task failed, or a speculative attempt runs beside it."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


class TaskError(Exception):
    """The traceback of an executor's error without secrets, because Spark writes it to its logs and its event log."""


@contextmanager
def _redacted_errors() -> Iterator[None]:
    """Replace an error by a TaskError if its traceback has a secret."""
    try:
        yield
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        if (shown := redacted(trace)) == trace:
            raise
        raise TaskError(shown) from None


@functools.cache
def _reduce_garbage_collection() -> None:
    """Reduce garbage collection, once in each worker: imported modules live as long as the worker, and executor
    functions create no reference cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@functools.cache
def _log_at_info() -> None:
    """Write log messages from level INFO to the worker's stderr, once in each worker that has no other handler."""
    if TaskContext.get() is not None and not logging.root.handlers:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger("distcommit").setLevel(logging.INFO)


@dataclass(frozen=True, slots=True)
class SparkLaunch:
    """Launcher of Spark jobs in a session. Jobs are tagged with the run's id, so that a cancellation finds them.

    Jobs use an RDD, which takes half the time of a DataFrame, and a third on a cold start. Over Spark Connect, which
    has no RDDs, they use a DataFrame. Reports must be small, because the driver has one of each task in memory.

    Attributes:
        spark: the session.
    """

    spark: SparkSession

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        call = PartitionCall(function, settings)
        collect = self._over_connect if over_connect(self.spark) else self._by_rdd
        try:
            reports = collect(call, tasks)
        except _JOB_FAILURES as error:
            _require_package(self.spark, str(error))
            if describe_death(str(error)):
                raise ProcessLostError(
                    "a Spark job failed",
                    job=function.__name__,
                    found=failure_text(str(error)),
                    todo="run again: sealed commits are replayed. If it dies again, check the executors' logs and"
                    " increase their memory (spark.executor.memoryOverhead, spark.executor.memory)",
                ) from error
            raise JobFailedError(str(error), failure_text(str(error)) or type(error).__name__) from error
        except (Py4JNetworkError, ConnectionError) as error:
            raise TransientError(  # not a ProcessLostError, after which further jobs of the run are launched
                "the JVM of Spark died",
                id="PROCESS_LOST",
                job=function.__name__,
                found=f"{type(error).__name__}: {error}",
                todo="run again: sealed commits are replayed. If it dies again, look for a killed Java process in"
                " the machine's log, and increase spark.driver.memory",
            ) from error
        return [from_msgpack(report, kind) for report in reports]

    def _by_rdd(self, call: PartitionCall[Any], tasks: int) -> list[bytes]:
        context, tag = self.spark.sparkContext, call.settings.run_id
        before = {name: context.getLocalProperty(name) for name in (_DESCRIPTION, _CALL_SITE, _POOL)}
        context.addJobTag(tag)
        context.setLocalProperty(_DESCRIPTION, _description(call))
        context.setLocalProperty(_CALL_SITE, _phase(call))
        context.setLocalProperty(_POOL, call.settings.store.job)
        try:
            return context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(call.in_task).collect()
        finally:
            with suppress(Py4JError, ConnectionError):  # of a JVM that has died: the first error says more
                context.removeJobTag(tag)
                for name, value in before.items():
                    context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it

    def _over_connect(self, call: PartitionCall[Any], tasks: int) -> list[bytes]:
        rows = self.spark.range(0, tasks, 1, tasks).mapInArrow(call.in_arrow, "report binary").collect()
        return [bytes(row["report"]) for row in rows]


def _phase(call: PartitionCall[Any]) -> str:
    return call.function.__name__.removesuffix("_partition").replace("_", " ")


def _description(call: PartitionCall[Any]) -> str:
    settings = call.settings
    unit = f" of work unit {settings.alone}" if settings.alone else ""
    return f"{settings.store.job}: run of epoch {settings.epoch}, {_phase(call)}{unit}"


def over_connect(spark: SparkSession) -> bool:
    """Return whether the session uses Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _require_package(spark: SparkSession, failure: str) -> None:
    """Raise a typed error if a job failed because the executors' Python cannot import this package."""
    match = _CAN_NOT_RUN.search(failure)
    if match is None:
        return
    try:
        python = spark.sparkContext.pythonExec
    except PySparkAttributeError:
        python = "that of the Spark Connect server"
    raise ConfigurationError(
        "the executors' Python cannot run distcommit",
        id="EXECUTORS_DIFFER",
        python=python,
        expected=f"Python {sys.version_info.major}.{sys.version_info.minor} with distcommit and its requirements",
        found=" ".join(match[0].split()),
        todo="install it on every node and set spark.pyspark.python to that Python, or ship it with the job by"
        " spark.submit.pyFiles or spark.archives: conf/docs/guides/cluster.md",
    )
