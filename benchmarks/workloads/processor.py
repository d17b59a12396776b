"""Processor time of a run: of this process, of Spark's JVM, and of the Python workers below it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import psutil
from pyspark.sql import SparkSession


class ProcessorTime:
    """Reads the clocks of a session's processes, on this machine. Servers that this process has started are not
    among them."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        self._jvm = psutil.Process(gateway.proc.pid)

    def seconds(self) -> dict[str, float]:
        """Return seconds since their start: `driver` (this process), `jvm`, `workers` (Python's, including ended
        ones)."""
        workers, jvm = 0.0, 0.0
        for process in [self._jvm, *self._jvm.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                own = times.user + times.system
                jvm += own if _is_java(process) else 0.0
                workers += times.children_user + times.children_system + (0.0 if _is_java(process) else own)
        return {"driver": time.process_time(), "jvm": jvm, "workers": workers}

    def since(self, before: dict[str, float]) -> dict[str, float]:
        """Return the seconds since then, and `cpu_s`, their sum."""
        took = {f"cpu_{name}_s": value - before[name] for name, value in self.seconds().items()}
        return took | {"cpu_s": sum(took.values())}


def _is_java(process: psutil.Process) -> bool:
    return str(process.name()).startswith("java")
