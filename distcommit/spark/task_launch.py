"""Launch of executor functions as Spark jobs, with one task for each partition and no shuffle."""

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
from distcommit.core.records.run_reasons import Reasons
from distcommit.core.redaction import redacted
from distcommit.core.support.decoding import from_msgpack
from distcommit.engine.driver.launch_interface import JobFailedError, Result
from distcommit.engine.driver.task_reports import Report
from distcommit.engine.node_failures import NodeFailedError
from distcommit.engine.run_settings import RunSettings
from distcommit.spark.failing_executors import describe_repeated
from distcommit.spark.job_failure_texts import CAN_NOT_RUN, describe_death, failure_text
from distcommit.spark.session_settings import is_cluster
from distcommit.spark.store_visibility_check import require_visible_store

logger = logging.getLogger(__name__)

_JOB_FAILURES = (PySparkException, Py4JJavaError)
"""Exceptions of a failed Spark job. Py4JJavaError is raised for failures outside Python, such as lost executors."""

_NOT_VISIBLE = re.compile("STORE_NOT_VISIBLE: [^\n]*")
_DESCRIPTION, _CALL_SITE = "spark.job.description", "callSite.short"
"""Thread-local texts for Spark's pages."""
_POOL = "spark.scheduler.pool"
"""Thread-local pool of Spark's fair scheduler."""


@dataclass(frozen=True, slots=True)
class PartitionCall(Generic[Result]):
    """A module-level executor function and its run, to be called with a partition number in a Spark task.

    Attributes:
        function: the executor function.
        settings: settings of the run.
        hands_back: how many of the first attempts at a task may fail for a reason that may be the node's.
    """

    function: Callable[[RunSettings, int], Result]
    settings: RunSettings
    hands_back: int = 0

    def in_task(self, partition: int, empty: Iterable[object]) -> Iterator[bytes]:
        """Call the function for an RDD's partition, whose content is ignored, and yield the encoded report."""
        del empty
        _reduce_garbage_collection()
        _log_at_info()
        settings, attempt = self.settings, _attempt()
        if attempt:
            settings = replace(settings, after_death=True)
        if attempt < self.hands_back:
            settings = replace(settings, hands_back=True)
        with _redacted_errors():
            require_visible_store(settings)
            report = self.function(settings, partition)
        yield msgspec.msgpack.encode(report)

    def in_arrow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"report": [*self.in_task(partition, ())]})


def _attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


class TaskError(Exception):
    """An executor's traceback without secrets, because Spark logs it."""


@contextmanager
def _redacted_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        if (shown := redacted(trace)) == trace:
            raise
        raise TaskError(shown) from None


@functools.cache
def _reduce_garbage_collection() -> None:
    """Reduce garbage collection, once in a worker: its modules stay, and executor functions create no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@functools.cache
def _log_at_info() -> None:
    if TaskContext.get() is not None and not logging.root.handlers:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger("distcommit").setLevel(logging.INFO)


@dataclass(frozen=True, slots=True)
class SparkLaunch:
    """Launcher of jobs tagged with the run's id for cancellations.

    Jobs use an RDD, which takes at most half the time of a DataFrame; Spark Connect needs a DataFrame. Reports must be
    small, because the driver has all of them in memory.

    Attributes:
        spark: the session.
    """

    spark: SparkSession

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        hands_back = _attempts_to_repeat(self.spark)
        try:
            results = self._collect(PartitionCall(function, settings, hands_back), tasks)
        except _JOB_FAILURES as error:
            _require_package(self.spark, str(error))
            _require_visible_store(str(error))
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
        reports = [from_msgpack(report, kind) for report in results]
        if hands_back:
            reports[0] = _with_notes(reports[0], describe_repeated(self.spark.sparkContext, settings.run_id))
        return reports

    def _collect(self, call: PartitionCall[Any], tasks: int) -> list[bytes]:
        """Run a job. If Spark has no other executor for a task that was handed back, run the job again without
        handing tasks back."""
        collect = self._over_connect if over_connect(self.spark) else self._by_rdd
        try:
            return collect(call, tasks)
        except _JOB_FAILURES as error:
            if not call.hands_back or NodeFailedError.__name__ not in str(error):
                raise
            logger.warning("no other executor repeats a failed task: %s", failure_text(str(error)))
            return collect(replace(call, hands_back=0), tasks)

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


def _attempts_to_repeat(spark: SparkSession) -> int:
    """Return how often Spark repeats a failed task: 0 in local mode and over Spark Connect."""
    if over_connect(spark):
        return 0
    context = spark.sparkContext
    return int(context.getConf().get("spark.task.maxFailures", "4") or 4) - 1 if is_cluster(context.master or "") else 0


def _with_notes(report: Any, notes: Reasons) -> Any:
    if isinstance(report, Report):
        return msgspec.structs.replace(report, notes=report.notes + notes)
    part = getattr(report, "report", None)
    return report if part is None else msgspec.structs.replace(report, report=_with_notes(part, notes))


def _phase(call: PartitionCall[Any]) -> str:
    return call.function.__name__.removesuffix("_partition").replace("_", " ")


def _description(call: PartitionCall[Any]) -> str:
    settings = call.settings
    unit = f" of work unit {settings.alone}" if settings.alone else ""
    return f"{settings.store.job}: run of epoch {settings.epoch}, {_phase(call)}{unit}"


def over_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _require_package(spark: SparkSession, failure: str) -> None:
    match = CAN_NOT_RUN.search(failure)
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


def _require_visible_store(failure: str) -> None:
    if match := _NOT_VISIBLE.search(failure):
        raise ConfigurationError.from_text(match[0])
