"""Flink's file sink, exactly once, by a small program in Java."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Set
from pathlib import Path

from benchmarks.peers.peer import HEAP, Peer, Place, parquet_files
from tests.servers.java import jars
from tests.servers.process import ServerUnavailableError

_PROGRAM = Path(__file__).parent / "java" / "TopicsToFiles.java"
_OPEN = ("java.lang", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util", "java.util.concurrent")


class FlinkFiles(Peer):
    """A mini cluster of two slots in one JVM, which resumes from the newest complete checkpoint."""

    name = "flink_files"
    system = "Apache Flink 2.2.0, FileSink, connector for Kafka 5.0.0"
    settings = {
        "write": "bulk format Parquet by Avro, zstd, a bucket for each topic; a file for each topic and checkpoint",
        "checkpoints": "EXACTLY_ONCE, the interval, 3 retained; a killed job goes on from the newest",
        "flink": f"mini cluster, parallelism 2, object reuse, heap {HEAP}",
    }

    def missing(self) -> str:
        try:
            _classes()
        except ServerUnavailableError as error:
            return str(error)
        return ""

    def command(self, place: Place) -> list[str]:
        java = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java"
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN]  # as Flink's own scripts do
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        path = f"{_classes()}:{jars('peer-flink')}/*"
        arguments = [place.stream.brokers, f"{place.stream.prefix}\\..*", str(place.root), str(place.interval_s)]
        newest = _newest_checkpoint(place)
        go_on = [f"file://{newest}"] if newest else []
        return [java, f"-Xmx{place.heap}", *opened, quiet, "-cp", path, _PROGRAM.stem, *arguments, *go_on]

    def visible(self, place: Place) -> Set[Path]:
        return parquet_files(place.output)  # files in progress, and those that wait for a checkpoint, are hidden

    def keep(self, place: Place) -> object:
        newest = _newest_checkpoint(place)
        if newest is None:
            return None
        copy = place.root / "kept-checkpoint"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(newest, copy)
        return copy, newest

    def put_back(self, place: Place, kept: object) -> None:
        shutil.rmtree(place.root / "checkpoints")
        if isinstance(kept, tuple):
            shutil.copytree(*kept)


def _newest_checkpoint(place: Place) -> Path | None:
    complete = (place.root / "checkpoints").glob("*/chk-*/_metadata")
    return max((path.parent for path in complete), key=lambda path: path.stat().st_mtime_ns, default=None)


@functools.cache
def _classes() -> Path:
    """Return the folder with the program's classes, compiled once for each process.

    Raises:
        ServerUnavailableError: if there are no jars, or no compiler.
    """
    home = os.environ.get("JAVA_HOME")
    compiler = shutil.which("javac", path=f"{home}/bin" if home else None)
    if compiler is None:
        raise ServerUnavailableError("javac is not on PATH (Debian: openjdk-17-jdk-headless)")
    folder = Path(_FOLDER.name)
    command = [compiler, "-cp", f"{jars('peer-flink')}/*", "-d", str(folder), str(_PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerUnavailableError(f"{_PROGRAM.name} can't be compiled: {done.stderr.strip()[-500:]}")
    return folder


_FOLDER = tempfile.TemporaryDirectory(prefix="flink-classes-")
