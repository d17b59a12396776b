"""Spark Structured Streaming: its file sink, and Delta Lake on it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyspark
from deltalake import DeltaTable

from benchmarks.peers import spark_stream
from benchmarks.peers.peer import HEAP, Peer, Place, parquet_files
from tests.servers.java import cache_folder, jars
from tests.servers.process import ServerUnavailableError

_LOCAL_FILES = {  # by default Hadoop starts a process to set a file's mode if its native library is missing
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "2",
}


class SparkStream(Peer):
    """A query of one Spark session on `local[2]`, with one checkpoint."""

    kind: str
    connector: str

    def keep(self, place: Place) -> object:
        copy = place.root / "kept-checkpoint"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place.root / "checkpoint", copy)
        return copy

    def put_back(self, place: Place, kept: object) -> None:
        shutil.rmtree(place.root / "checkpoint")
        shutil.copytree(str(kept), place.root / "checkpoint")

    def missing(self) -> str:
        try:
            jars(self.connector)
        except ServerUnavailableError as error:
            return str(error)
        return ""

    def command(self, place: Place) -> list[str]:
        conf = _LOCAL_FILES | _QUIET | dict(self._conf())
        conf["spark.driver.memory"] = place.heap
        conf["spark.kafka.consumer.cache.capacity"] = str(2 * place.stream.topics)
        options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        pattern = f"{place.stream.prefix}\\..*"
        arguments = [self.kind, place.stream.brokers, pattern, str(place.root), str(place.interval_s)]
        packages = ",".join(sorted(map(str, jars(self.connector).glob("*.jar"))))
        return [
            str(self._home() / "bin" / "spark-submit"),
            "--master",
            "local[2]",
            "--jars",
            packages,
            *options,
            spark_stream.__file__,
            *arguments,
        ]

    def _conf(self) -> Mapping[str, str]:
        return {}

    def _home(self) -> Path:
        """Return the PySpark that runs it."""
        return Path(pyspark.__file__).parent

    def environment(self) -> dict[str, str]:
        return {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(self._home()), "PYTHONPATH": ""}


class SparkFiles(SparkStream):
    """Its file sink; Spark's own readers use `_spark_metadata`."""

    name, kind, connector = "spark_files", "parquet", "spark-kafka"
    system = f"Spark Structured Streaming {pyspark.__version__}, file sink"
    settings = {
        "write": "format parquet, partitionBy topic, compression zstd, coalesce(2): a file for each topic and batch",
        "trigger": "processingTime, the interval",
        "exactly once by": "checkpointLocation and _spark_metadata, which its readers go by",
        "spark": f"local[2], driver {HEAP}, RawLocalFileSystem (no process is started for a file's mode), "
        "spark.kafka.consumer.cache.capacity: twice the topics (64 by default), "
        "kafka.fetch.max.wait.ms: 10 (500 by default)",
    }

    def visible(self, place: Place) -> Set[Path]:
        return committed_files(place.output / "_spark_metadata")

    def commit_begins(self, place: Place) -> int:
        return len(parquet_files(place.output))


def committed_files(log: Path) -> set[Path]:
    """Return the files that a log of Spark's file sink names: its newest compacted batch, and those after it."""
    with contextlib.suppress(FileNotFoundError):
        names = [name for name in os.listdir(log) if name.split(".")[0].isdigit()]
        compacted = max((int(name.split(".")[0]) for name in names if name.endswith(".compact")), default=-1)
        requested = [name for name in names if int(name.split(".")[0]) > compacted or name == f"{compacted}.compact"]
        return set(_added(log / name for name in requested if name != str(compacted)))
    return set()


def _added(batches: Iterable[Path]) -> Iterable[Path]:
    for batch in batches:
        for line in batch.read_text(encoding="utf-8").splitlines()[1:]:
            entry = json.loads(line)
            if entry["action"] == "add":
                yield Path(unquote(urlparse(entry["path"]).path))


class SparkDelta(SparkStream):
    """Delta Lake on Spark: one table, partitioned by topic, by the PySpark that its newest release is for."""

    name, kind, connector = "delta_by_spark", "delta", "peer-delta"
    pyspark_version = "4.1.1"
    reads_folders = False
    system = f"Delta Lake by Spark Structured Streaming {pyspark_version}"
    settings = {
        "write": "format delta, one table, partitionBy topic, compression zstd, coalesce(2)",
        "trigger": "processingTime, the interval",
        "exactly once by": "the query's number and its batch's in the table's transaction log",
        "spark": f"local[2], driver {HEAP}, RawLocalFileSystem (no process is started for a file's mode), "
        "spark.kafka.consumer.cache.capacity: twice the topics (64 by default), "
        "kafka.fetch.max.wait.ms: 10 (500 by default)",
    }

    def missing(self) -> str:
        if reason := super().missing():
            return reason
        if not self._home().is_dir():
            venv.create(self._environment_folder(), with_pip=True)
            command = [str(self._environment_folder() / "bin" / "pip"), "install", "-q"]
            done = subprocess.run(
                [*command, f"pyspark=={self.pyspark_version}"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                shutil.rmtree(self._environment_folder())
                return f"pip can't get pyspark {self.pyspark_version}: {done.stderr.strip()[-300:]}"
        return ""

    def visible(self, place: Place) -> Set[Path]:
        if not (place.output / "_delta_log").exists():
            return set()
        return {Path(unquote(urlparse(uri).path)) for uri in DeltaTable(str(place.output)).file_uris()}

    def commit_begins(self, place: Place) -> int:
        return len(parquet_files(place.output))

    def _conf(self) -> Mapping[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYSPARK_PYTHON": str(self._environment_folder() / "bin" / "python")}

    def _environment_folder(self) -> Path:
        return cache_folder() / f"peer-pyspark-{self.pyspark_version}"

    def _home(self) -> Path:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return self._environment_folder() / "lib" / f"python{version}" / "site-packages" / "pyspark"
