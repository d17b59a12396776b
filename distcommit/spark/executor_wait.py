"""The wait for executors."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from distcommit.core.errors import TransientError

logger = logging.getLogger(__name__)

_POLL_S = 0.3
_FURTHER_WAIT_S = 15.0
_TAG = "distcommit waits for an executor"


def wait_for_executor(spark: SparkSession, report_s: float = 30.0, limit_s: float = 300.0) -> None:
    """Wait until a cluster's session has an executor, with a warning each `report_s` seconds.

    Raises:
        TransientError: if there is no executor after `limit_s` seconds.
    """
    if executors_of(spark):
        return
    begun_s = reported_s = time.monotonic()
    threading.Thread(target=_run_task, args=(spark,), daemon=True).start()
    while not executors_of(spark):
        now_s = time.monotonic()
        if now_s - begun_s >= limit_s:
            spark.sparkContext.cancelJobsWithTag(_TAG)
            raise _no_executor(spark, now_s - begun_s)
        if now_s - reported_s >= report_s:
            reported_s = now_s
            logger.warning("the run waits: %s", _no_executor(spark, now_s - begun_s).text)
        time.sleep(_POLL_S)


def wait_for_further_executors(spark: SparkSession) -> None:
    """Wait until no further executor has registered for 0.3 seconds, at most 15 seconds."""
    registered, until_s = executors_of(spark), time.monotonic() + _FURTHER_WAIT_S
    while time.monotonic() < until_s:
        time.sleep(_POLL_S)
        before, registered = registered, executors_of(spark)
        if registered == before:
            return


def executors_of(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one of them


def _run_task(spark: SparkSession) -> None:
    context = spark.sparkContext
    with suppress(Py4JError, ConnectionError):  # cancelled, or the JVM has died
        context.addJobTag(_TAG)
        context._jsc.parallelize(context._jvm.java.util.ArrayList([0]), 1).count()  # type: ignore[union-attr]


def _no_executor(spark: SparkSession, waited_s: float) -> TransientError:
    context = spark.sparkContext
    conf = context.getConf()
    asked = {name: conf.get(f"spark.executor.{name}") for name in ("instances", "cores", "memory")}
    return TransientError(
        "no executor of Spark has started",
        id="EXECUTORS_UNAVAILABLE",
        master=context.master,
        application=context.applicationId,
        expected="an executor"
        + "".join(f", spark.executor.{name} {value}" for name, value in asked.items() if value is not None),
        found=f"none after {waited_s:.0f} s",
        todo="look up the application in the cluster's web interface: too few free cores or memory for an executor, or"
        " executors that end at once, whose logs say why",
    )
