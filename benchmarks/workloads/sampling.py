"""Where executors spend their time, by a thread that samples the main thread."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar
from unittest.mock import patch

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.workloads.requests import counts_of
from distcommit.engine.run_settings import RunSettings
from distcommit.sinks.files import open_file
from distcommit.sinks.files.content_sum import content_sum
from distcommit.spark.task_launch import SparkLaunch

Result = TypeVar("Result", bound=msgspec.Struct)
_EVERY_S = 0.005
_PLACES = {"commit": ("/core/support/io_batching.py", ""), "sync": ("/engine/reading/ingest.py", "_put_states")}
"""By file, and by function if it is not the whole file. The innermost matching frame counts."""


@dataclass(frozen=True, slots=True)
class Sampled(Generic[Result]):
    """An executor function that leaves in `folder` the seconds of each of its parts.

    Sampled are `commit` (seal, execute, close, clean up), `sync` (staged files and task states made durable), and the
    total. `content`, the sums of the records' content, is timed, as it blocks sampling while it calls into C. The file
    system's requests are added if they are counted (see `workloads.requests`).
    """

    function: Callable[[RunSettings, int], Result]
    folder: str

    def __call__(self, settings: RunSettings, partition: int) -> Result:
        seen: Counter[str] = Counter()
        ended, main = threading.Event(), threading.get_ident()

        def look() -> None:
            while not ended.wait(_EVERY_S):
                seen["all"] += 1
                if place := _place_of(sys._current_frames().get(main)):
                    seen[place] += 1

        watcher = threading.Thread(target=look, daemon=True)
        timed = _Timed(content_sum)
        began = time.perf_counter()
        watcher.start()
        try:
            with patch.object(open_file, "content_sum", timed):
                return self.function(settings, partition)
        finally:
            seconds = time.perf_counter() - began
            ended.set()
            watcher.join()
            share = {place: seconds * seen[place] / max(1, seen["all"]) for place in _PLACES}
            counts = counts_of(settings.store.fs)
            record = msgspec.json.encode({"seconds": seconds, "content": timed.seconds, **share, **counts})
            Path(self.folder, f"{self.function.__name__}-{uuid.uuid4().hex}").write_bytes(record)


class _Timed:
    """A function with the total time of its calls."""

    def __init__(self, function: Callable[[pa.Table], int]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, rows: pa.Table) -> int:
        began = time.perf_counter()
        try:
            return self.function(rows)
        finally:
            self.seconds += time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class SampledLaunch:
    """Launches on Spark as the product does, with each function sampled."""

    spark: SparkSession
    folder: Path

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        return SparkLaunch(self.spark)(Sampled(function, str(self.folder)), settings, tasks, kind)

    def seconds_of(self, name: str) -> Counter[str]:
        """Return the sums over all tasks of the function with that name."""
        return self._sum(f"{name}-*")

    def of_all(self) -> Counter[str]:
        """Return the sums over all tasks of all functions."""
        return self._sum("*_partition-*")

    def _sum(self, pattern: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for path in self.folder.glob(pattern):
            total.update(msgspec.json.decode(path.read_bytes(), type=dict[str, float]))
        return total


def _place_of(frame: FrameType | None) -> str:
    while frame is not None:
        for place, (file, function) in _PLACES.items():
            if frame.f_code.co_filename.endswith(file) and function in ("", frame.f_code.co_name):
                return place
        frame = frame.f_back
    return ""
