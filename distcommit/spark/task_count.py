"""The number of tasks of a run, from the number of slots."""

from __future__ import annotations

import logging

from pyspark import SparkConf
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

from distcommit.core.errors import ConfigurationError
from distcommit.spark.executor_wait import wait_for_executor, wait_for_further_executors
from distcommit.spark.session_settings import SparkSettings, is_cluster

logger = logging.getLogger(__name__)

_MANAGED = ("yarn", "k8s:")
"""Masters that start as many executors as configured."""
WAVES = 2
"""Number of tasks for each slot, so that a slot whose task had less to read takes another task."""
_MAX_EXECUTORS = 10_000
"""A larger number of configured executors is a placeholder and not a limit."""


def partitions_of(spark: SparkSession, settings: SparkSettings, buckets: int, waves: int = WAVES) -> int:
    """Return the number of tasks of a run: the setting, or `waves` for each slot.

    It is at most the greater number of buckets and slots; over Spark Connect, at most that of buckets.

    Raises:
        ConfigurationError: if the number is not set, and the session uses Spark Connect, which does not report its
            slots.
    """
    try:
        slots = slots_of(spark)
    except PySparkAttributeError as error:
        if settings.partitions:
            return min(settings.partitions, buckets)
        raise ConfigurationError(
            "Spark Connect does not report the number of slots",
            id="SPARK_SETTINGS_INVALID",
            expected="spark.partitions above 0",
            todo="set spark.partitions to about twice the slots of the server's executors",
        ) from error
    if buckets < slots:
        logger.warning(
            "commit.buckets is %d, and Spark has %d slots: at most %d tasks commit at a time; to use all slots, give"
            " `distcommit store rebucket`",
            buckets,
            slots,
            buckets,
        )
    return min(settings.partitions or waves * slots, max(buckets, slots))


def slots_of(spark: SparkSession) -> int:
    """Return the number of tasks that can run at once on all configured executors.

    If the configuration does not show the number of executors, those that register first are counted.

    Raises:
        TransientError: if a cluster starts no executor.
    """
    context = spark.sparkContext
    conf, master = context.getConf(), context.master or ""
    if is_cluster(master):
        wait_for_executor(spark)
        if configured := configured_slots(conf, master):
            return configured
        wait_for_further_executors(spark)
    return max(1, context.defaultParallelism // max(1, int(conf.get("spark.task.cpus", "1") or 1)))


def configured_slots(conf: SparkConf, master: str) -> int:
    """Return the number of slots of a cluster's configured executors; 0 if unknown."""

    def number(name: str, default: int = 0) -> int:
        return int(conf.get(name, str(default)) or default)

    is_managed = master.startswith(_MANAGED)
    cores = number("spark.executor.cores", 1 if is_managed else 0)
    if str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        executors = number("spark.dynamicAllocation.maxExecutors")
        if not 0 < executors < _MAX_EXECUTORS:
            executors = 0
            logger.warning(
                "spark.dynamicAllocation.maxExecutors sets no limit, so that the number of slots is unknown; set it, or"
                " spark.partitions"
            )
    else:
        executors = number("spark.executor.instances", 2 if is_managed else 0)
    slots = max(executors * cores, 0 if is_managed else number("spark.cores.max"))
    return slots // max(1, number("spark.task.cpus", 1))
