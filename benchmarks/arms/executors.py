"""Another arm on real executors: that many processes.

More of them than this machine's cores only help while they wait, so each metadata operation takes long, in a server
process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.results import Sample
from benchmarks.runner import Arm, Parts, Tell, WrongResultError, alternate
from benchmarks.session import cluster_session
from benchmarks.workloads.latency import Latency, LatencyServer, far_file_system
from benchmarks.workloads.tree import Shape
from distcommit.core.interfaces.file_system import FileSystem


class OnExecutors(Arm):
    """The arm on a Spark cluster on this machine, whose start for each sample is not part of the time.

    Its seconds are the whole job's: tasks are launched while others wait, so that a job of no-ops cannot be subtracted.

    Args:
        name: of this arm.
        executors: their number, with one slot each.
        make: creates the arm on that session.
    """

    def __init__(self, name: str, executors: int, make: Callable[[SparkSession], Arm]) -> None:
        self.name, self._executors, self._make = name, executors, make

    def publish(self, shape: Shape, root: Path) -> Parts:
        with cluster_session(self._executors) as spark:
            parts = self._make(spark).publish(shape, root)
        if parts["executors"] != self._executors:
            raise WrongResultError(f"{self.name}: {parts['executors']:.0f} executors worked")
        return parts | {"seconds": parts["wall_s"]}


MakeFarArm = Callable[[SparkSession, FileSystem, Latency], Arm]
"""The arm on a session, on a file system whose operations wait."""


def measure_executors(
    name: str,
    executors: Sequence[int],
    make: MakeFarArm,
    shape: Shape,
    *,
    delay_ms: float,
    repeats: int,
    folder: Path,
    tell: Tell,
) -> list[Sample]:
    """Measure `<name>_<n>_executors` for each number of executors, with one operation at a time in each."""
    with LatencyServer(delay_ms / 1000) as server:
        fs = far_file_system(server, 1)
        arms = [
            OnExecutors(f"{name}_{count}_executors", count, lambda spark: make(spark, fs, server))
            for count in executors
        ]
        return alternate(arms, shape, repeats, folder, tell)


def speed_ups(samples: Sequence[Sample], executors: Sequence[int]) -> dict[str, float]:
    """Return the speed-up of each number of executors over the first."""
    seconds = {count: median(s.seconds for s in samples if s.parts["executors"] == count) for count in executors}
    return {f"speed_up_{n}_executors_over_{executors[0]}": seconds[executors[0]] / seconds[n] for n in executors[1:]}
