"""The Spark session of a run."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Collection, Mapping

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from distcommit.core.errors import ConfigurationError, DistcommitError, ProcessLostError, TransientError
from distcommit.core.redaction import redacted
from distcommit.core.support.install_command import install_command
from distcommit.fs.secret_files import SECRET_FILE, with_secret_files
from distcommit.spark.java_check import check_java
from distcommit.spark.session_settings import SparkSettings, is_cluster, is_submitted
from distcommit.spark.submitted_settings import given_settings, master_of, report_overridden

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 10
_TRANSIENT_CAUSES = re.compile(
    r"java\.(net|io|nio)\.(?!.*(UnknownHost|URISyntax|MalformedURL|FileNotFound|NoSuchFile))"
)
"""Pattern of Java exceptions that may not recur."""
_REDACTION, _USUAL_REDACTION = "spark.redaction.regex", "(?i)secret|password|token|access[.]?key|credential"
_READ_AT_START = (
    "spark.driver.",
    "spark.jars",
    "spark.submit.",
    "spark.files",
    "spark.archives",
    "spark.pyspark.",
    "spark.yarn.",
    "spark.kubernetes.",
    "spark.kerberos.",
    "spark.log.",
    "spark.ui.showConsoleProgress",
)
"""Prefixes of settings that the JVM reads at its start."""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
}
"""Default settings of the product."""
_REPEATED_ELSEWHERE = {
    "spark.excludeOnFailure.taskAndStage.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "1000000",
    "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "15s",
}
"""Defaults on a cluster: of four attempts at a task, at most two run on one executor or node. No executor is excluded
for other tasks, because records that kill workers would exclude all of them. A cluster of one node has no other
executor; there Spark would wait two minutes for an executor before it fails the job.
"""
_EXCLUSION = ("spark.excludeOnFailure.", "spark.blacklist.", "spark.task.maxFailures")
"""Prefixes of settings that replace all of `_REPEATED_ELSEWHERE` if one of them is given."""
_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Unix sockets are 4 times faster than TCP, but their paths are limited to about 100 bytes, and containers' folders are
longer."""


def active_session() -> SparkSession | None:
    """Return the live session of this process, or None. Its owner must stop it."""
    try:
        session = SparkSession.active()
    except PySparkRuntimeError:
        return None
    return session if is_alive(session) else None


def open_session(settings: SparkSettings, app_name: str) -> SparkSession:
    """Open a session with the job file's settings. The caller must stop it.

    The job file's settings take precedence over settings of spark-submit and spark-defaults.conf; replaced settings
    are logged. The master of spark-submit is not replaced.

    Raises:
        ConfigurationError: if Java or the packages for Spark Connect are missing, the Spark Connect server does not
            respond, or Spark rejects its settings.
        ProcessLostError: if the JVM died during startup.
        TransientError: if Spark cannot reach its cluster, a port or a file.
    """
    if settings.remote:
        return _open_remote(settings.remote)
    check_java()
    supplied = given_settings()
    master = master_of(settings, supplied)
    report_overridden(settings.conf, supplied)
    builder = SparkSession.builder.appName(app_name).master(master)
    if "spark.pyspark.python" in settings.conf:  # PySpark itself reads only the environment
        os.environ["PYSPARK_PYTHON"] = settings.conf["spark.pyspark.python"]
    elif "spark.pyspark.python" in supplied and not is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", supplied["spark.pyspark.python"])
    elif "spark.pyspark.python" not in supplied:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own = default_settings(master, {*supplied, *settings.conf})
    conf = {key: with_secret_files(value) for key, value in {**own, **settings.conf}.items()}
    conf[_REDACTION] = redaction_pattern(settings.conf)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        _start_jvm(master, {key: value for key, value in conf.items() if _is_start_setting(key, settings.conf)})
        return builder.getOrCreate()
    except Exception as error:
        raise not_started(error, master) from error


def default_settings(master: str, given: Collection[str]) -> dict[str, str]:
    defaults = {**_SETTINGS, _UNIX_SOCKETS: str(master.startswith(("local", "spark:"))).lower()}
    if is_cluster(master) and not any(name.startswith(_EXCLUSION) for name in given):
        defaults |= _REPEATED_ELSEWHERE
    return {name: value for name, value in defaults.items() if name not in given}


def not_started(error: Exception, master: str) -> DistcommitError:
    """Return the typed error of a failed start: a dead JVM, a transient error, or wrong settings."""
    try:
        text, answers = str(error), True
    except Exception as silence:  # noqa: BLE001 - py4j asks the JVM for the text, and the JVM is gone
        text, answers = f"{type(error).__name__}: {silence}", False
    first_line, subject = (text.strip().splitlines() or [type(error).__name__])[0], "Spark does not start"
    lost_connection = (Py4JError, OSError, EOFError)
    if (
        not answers
        or "JAVA_GATEWAY_EXITED" in text
        or (isinstance(error, lost_connection) and not isinstance(error, Py4JJavaError))
    ):
        return ProcessLostError(
            "the JVM died while Spark started",
            master=master,
            found=first_line,
            todo="start again. If it recurs, look for a killed Java process (memory), or correct"
            " spark.driver.memory and the Java options of spark.conf; the log above has details",
        )
    if "stopped SparkContext" in text:  # a standalone cluster rejects an application by stopping its context
        first_line = "the master did not respond, or ended the application"
    causes = re.findall(r"^(?:Caused by)?: ([\w.$]+)", text, re.MULTILINE)
    if "stopped SparkContext" in text or (causes and _TRANSIENT_CAUSES.match(causes[-1])):
        todo = "check that the cluster of spark.master, its ports and disks work, and start again"
        return TransientError(subject, id="SPARK_UNAVAILABLE", master=master, found=first_line, todo=todo)
    return ConfigurationError(
        subject,
        id="SPARK_SETTINGS_INVALID",
        master=master,
        found=first_line,
        todo="correct spark.master and spark.conf; the log above has details",
    )


def redaction_pattern(conf: Mapping[str, str]) -> str:
    """Return the pattern of settings to hide in Spark's log and pages: Spark's own pattern, secret files, and redacted
    values."""
    hidden = (key for key, value in conf.items() if SECRET_FILE.search(value) or redacted(value) != value)
    names = "|".join(map(re.escape, hidden))
    return "|".join(part for part in (conf.get(_REDACTION, _USUAL_REDACTION), names and f"^(?:{names})$") if part)


def _is_start_setting(key: str, conf: Mapping[str, str]) -> bool:
    is_secret = SECRET_FILE.search(conf.get(key, "")) or re.search(conf.get(_REDACTION, _USUAL_REDACTION), key)
    return key.startswith(_READ_AT_START) and not is_secret


def _start_jvm(master: str, conf: Mapping[str, str]) -> None:
    """Start the JVM with the settings that it reads at its start; others pass over its gateway, hidden from `ps`."""
    if SparkContext._gateway is None:
        start_conf = SparkConf(loadDefaults=False).setMaster(master)
        for key, value in conf.items():
            start_conf.set(key, value)
        SparkContext._ensure_initialized(gateway=launch_gateway(start_conf))  # type: ignore[no-untyped-call]


def is_alive(spark: SparkSession) -> bool:
    """Return whether a session (without Spark Connect) can launch jobs."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # py4j reports a dead JVM in several ways
        logger.warning("the Spark session does not respond", exc_info=True)
        return False


def stop_session(spark: SparkSession) -> None:
    """Stop a session; an error of a dead JVM is only logged."""
    try:
        spark.stop()
    except Exception:
        logger.info("the Spark session could not be stopped", exc_info=True)


def _open_remote(url: str) -> SparkSession:
    try:
        _require_reachable(url)
        return SparkSession.builder.remote(url).create()
    except ImportError as error:
        raise ConfigurationError(
            "the packages for Spark Connect are not installed",
            id="PACKAGE_MISSING",
            remote=url,
            found=_first_line(error),
            todo=f"run `{install_command('connect')}`",
        ) from error
    except Exception as error:
        raise ConfigurationError(
            "the Spark Connect server does not respond",
            id="SPARK_SETTINGS_INVALID",
            remote=url,
            found=_first_line(error),
            todo="start the server, or correct spark.remote",
        ) from error


def _require_reachable(url: str) -> None:
    import grpc  # noqa: PLC0415 - an extra
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - an extra

    with DefaultChannelBuilder(url).toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(_CONNECT_TIMEOUT_S)
        except grpc.FutureTimeoutError as error:
            raise ConnectionError(f"no connection within {_CONNECT_TIMEOUT_S} seconds") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
