"""Cheap starts of Spark's JVMs: tests start hundreds of them, and each lives for seconds."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tests.servers.java import cache_folder

_ALWAYS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_ROOT = Path(__file__).parents[2]

# What a run of the product loads first. The JVM writes its archive as it ends, which has to be waited for.
_SMALL_JOB = """
from pyspark import SparkContext
from distcommit.spark.session import open_session
from distcommit.spark.session_settings import SparkSettings
def same(batches):
    yield from batches
session = open_session(SparkSettings(master="local[2,4]"), "archive")
gateway = SparkContext._gateway
session.range(0, 4, 1, 4).mapInArrow(same, "id long").collect()
session.sparkContext.parallelize(range(4), 4).mapPartitions(list).collect()
session.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def start_cheaply() -> None:
    """Reduce the processor time for starting Spark's JVMs in this process and its children.

    A collector and a compiler for short lives halve it. An archive of the classes that a small job loads, which a JVM
    maps instead of reading jars, saves two fifths of the rest. The archive (150 MB) is created once for each pyspark
    and Java, in half a minute, and stored beside the jars of servers. Without it, JVMs only start more slowly. If the
    environment has Spark settings of its own, nothing is done.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if "SPARK_CONF_DIR" in os.environ or "SPARK_SUBMIT_OPTS" in os.environ or java is None:
        return
    archive = _archive(java)
    options = f"{_ALWAYS} -XX:SharedArchiveFile={archive} -Djava.io.tmpdir={tempfile.gettempdir()}"
    # An archive is for one class path, on which all folders are empty: the options cannot come from a file in this one.
    os.environ["SPARK_CONF_DIR"] = str(archive.parent / "conf")
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = options
    os.environ["SPARK_SUBMIT_OPTS"] = f'{options} "-Dspark.executor.extraJavaOptions={options}"'


def _archive(java: str) -> Path:
    """Return the archive for this pyspark and Java; create it if necessary."""
    spark = Path(pyspark.__file__).parent
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    jars = sorted((jar.name, jar.stat().st_mtime_ns) for jar in (spark / "jars").iterdir())
    place, content = (hashlib.sha256(repr(key).encode()).hexdigest()[:12] for key in (spark, (version, jars)))
    folder = cache_folder() / f"spark-{place}-{content}"
    archive = folder / "classes.jsa"
    if archive.exists():
        return archive
    for older in cache_folder().glob(f"spark-{place}-*"):
        if older != folder:
            shutil.rmtree(older, ignore_errors=True)
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    # If another process creates it, the JVMs that start meanwhile do so without it.
    with (folder / "lock").open("w") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _create(archive)
    return archive


def _create(archive: Path) -> None:
    """Let a JVM write the archive as it ends. If it fails, there is none."""
    folder = archive.parent
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as new:
        new_archive = Path(new, archive.name)
        environment = {
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_SUBMIT_OPTS": f"{_ALWAYS} -XX:ArchiveClassesAtExit={new_archive}",
        }
        ended = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            ended = subprocess.run(
                [sys.executable, "-c", _SMALL_JOB],
                env={**os.environ, **environment},
                cwd=_ROOT,
                capture_output=True,
                timeout=240,
                check=False,
            )
        if ended and new_archive.exists():
            new_archive.replace(archive)
