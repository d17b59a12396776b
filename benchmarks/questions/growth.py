"""The cost beyond this machine: a model of calls, bytes and processor time, and executors on virtual time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

from benchmarks.noise import Ratios
from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import Tell
from benchmarks.workloads.traced_run import Load, TracedRun, totals_of, traced_run
from benchmarks.workloads.virtual_time import Surroundings, lay_out
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.fs.hadoop.hdfs_file_system import HdfsFileSystem
from distcommit.fs.hadoop.hdfs_rpc import HdfsRpc
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.object_stores.s3_file_system import S3FileSystem
from distcommit.fs.object_stores.s3_requests import S3Requests
from tests.servers.hdfs import HdfsServer
from tests.servers.process import ServerUnavailableError
from tests.servers.s3 import S3Server

_FITTED = ((8, 1, 4, 1), (16, 1, 4, 2), (16, 4, 4, 1), (32, 2, 8, 2), (32, 1, 16, 4), (24, 3, 8, 1), (48, 4, 16, 2))
"""Datasets, files of each, buckets, partitions of the fitted runs; datasets times the unit."""
_CHECKED = ((96, 4, 32, 4), (64, 1, 32, 8), (128, 2, 16, 4))
"""Runs to check the model, which was not fitted to them."""
_TARGET = Load(100_000, 4, 1024, 200)
_TARGET_EXECUTORS = 100
_COSTS = ("calls", "writes", "bytes", "cpu_s")
_BEND = 0.85
_HDFS_RATE_PER_S, _S3_RATE_PER_S = 5_600, 3_500
"""Writes a second: creates of one NameNode; PUT, COPY, POST and DELETE of one prefix."""
_NOTES = [
    "the model: each cost is a sum over one run, tasks, buckets, datasets and files, by least squares of relative "
    "errors; tasks and the driver by themselves; runs into folders that are there",
    "error: the largest relative error over the runs that it was not fitted to, which are two to three times as large",
    "in one process, tasks one after the other, syncs noted and not made on the disk; cpu leaves out what is within "
    "calls there, and has the clients of HDFS and S3 within it elsewhere",
    "the table: 100,000 datasets of 4 files, 1,024 buckets, 100 executors with two tasks each; s_one_call: each task "
    "has one call under way; s_all_calls: as many as the file system allows, all the time; the truth is between",
    "s_by_rate: what the server's rate of writes allows for at least; it counts for the table's whole",
    "S3: 100 ms, the lower end of the 100 to 200 ms of the Amazon S3 User Guide (performance guidelines), and 3,500 "
    "writes a second for one prefix, by the same; it grows with prefixes",
    "HDFS: 2 ms for a call is assumed, as in the question latency; so are 5,600 writes a second of one NameNode, the "
    "order of what Shvachko measured (HDFS scalability: the limits to growth, ;login: 35/2, 2010)",
    "virtual time: the product's own tasks, traced one by one, on as many executors with one slot; what they share is "
    "the driver and one metadata server that answers one after the other; one call under way in each, 2 ms each, "
    "of which the server works 0.05 ms; a launch takes the driver 2 ms; assumptions all three",
    "bend: the first number of executors whose speed-up is below 0.85 of linear, 0 if there is none; the driver's "
    "share, the server's and the imbalance of tasks say why",
]


@dataclass(frozen=True, slots=True)
class Asked:
    """Extent of the traces.

    Attributes:
        unit: datasets of the smallest run are 8 times that.
        datasets, buckets: of the runs that are simulated on executors, each dataset with one file.
        executors: their numbers; the speed-up is over one.
        on_hdfs, on_s3: whether the model is fitted there, too.
        hdfs_ms, s3_ms: the duration of a call there.
        service_ms, launch_ms: see `Surroundings`.
    """

    unit: int = 4
    datasets: int = 2048
    buckets: int = 512
    executors: tuple[int, ...] = (8, 64, 256)
    on_hdfs: bool = False
    on_s3: bool = False
    hdfs_ms: float = 2.0
    s3_ms: float = 100.0
    service_ms: float = 0.05
    launch_ms: float = 2.0


class Model:
    """Costs as sums over a run's parts: `costs[cost]` are those of a run, a task, a bucket, a dataset, a file."""

    def __init__(self, loads: Sequence[Load], found: Sequence[dict[str, float]]) -> None:
        rows = np.array([_features(load) for load in loads])
        self.costs: dict[str, list[float]] = {}
        for cost in _COSTS:
            values = np.array([item[cost] for item in found])
            weights = 1 / np.maximum(values, 1e-9)  # errors are relative: small runs count as much as large ones
            solved = np.linalg.lstsq(rows * weights[:, None], values * weights, rcond=None)[0]
            self.costs[cost] = [float(value) for value in solved]

    def of(self, load: Load) -> dict[str, float]:
        """Return the costs of such a run."""
        return {cost: max(0.0, float(np.dot(_features(load), np.array(item)))) for cost, item in self.costs.items()}


def _features(load: Load) -> list[float]:
    return [1.0, load.partitions, load.buckets, load.datasets, load.datasets * load.files]


def growth(asked: Asked, *, folder: Path, tell: Tell) -> Results:
    """Fit the model, check it, print its result for a large job, and simulate runs on executors.

    Args:
        asked: the extent.
        folder: best in memory: nothing is synced there.
        tell: receives each run.

    Raises:
        WrongRunError: if a run did not commit its datasets.
    """
    ratios, samples = Ratios(), list[Sample]()
    _fit_disk(asked, folder, ratios, samples, tell)
    for place, requested, fit in (("hdfs", asked.on_hdfs, _fit_hdfs), ("s3", asked.on_s3, _fit_s3)):
        try:
            if requested:
                fit(asked, ratios, samples, tell)
            else:
                ratios.leave_out(f"table_{place}_calls", "not asked for")
        except ServerUnavailableError as error:
            ratios.leave_out(f"table_{place}_calls", str(error))
    _simulate(asked, folder, ratios, samples, tell)
    return results_of(
        "growth",
        ratios.found,
        samples,
        seed=0,
        folder=folder,
        parameters={name: _plain(value) for name, value in asdict(asked).items()},
        skipped=ratios.reasons,
        notes=_NOTES,
    )


def _plain(value: int | float | bool | tuple[int, ...]) -> int | float | list[int]:
    """Return the values for results."""
    return list(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value


def _fit_disk(asked: Asked, folder: Path, ratios: Ratios, samples: list[Sample], tell: Tell) -> None:
    def traced(load: Load) -> TracedRun:
        with TemporaryDirectory(prefix="growth-", dir=folder) as root:
            return traced_run(LocalFileSystem(), root, load, syncs=False)

    _fit("disk", asked.unit, traced, ratios, samples, tell)


def _fit_hdfs(asked: Asked, ratios: Ratios, samples: list[Sample], tell: Tell) -> None:
    with HdfsServer() as server:
        numbers = iter(range(1_000))

        def traced(load: Load) -> TracedRun:
            return traced_run(HdfsFileSystem(HdfsRpc(server.authority)), f"/growth-{next(numbers)}", load)

        models = _fit("hdfs", asked.unit, traced, ratios, samples, tell)
        parallel = HdfsFileSystem(HdfsRpc(server.authority)).parallel_calls
    _tabulate("hdfs", models, asked.hdfs_ms / 1000, _HDFS_RATE_PER_S, parallel, ratios)


def _fit_s3(asked: Asked, ratios: Ratios, samples: list[Sample], tell: Tell) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(S3Server())
        stack.enter_context(patch.dict(os.environ, server.environment))

        def file_system() -> FileSystem:
            return S3FileSystem(S3Requests(server.make_bucket()))

        models = _fit("s3", asked.unit, lambda load: traced_run(file_system(), "/growth", load), ratios, samples, tell)
        parallel = file_system().parallel_calls
    _tabulate("s3", models, asked.s3_ms / 1000, _S3_RATE_PER_S, parallel, ratios)


def _fit(
    place: str,
    unit: int,
    traced: Callable[[Load], TracedRun],
    ratios: Ratios,
    samples: list[Sample],
    tell: Tell,
) -> dict[str, Model]:
    """Fit the models of tasks and driver there; return them with their costs by dataset and so on, and their errors."""
    loads = [Load(datasets * unit, *remainder) for datasets, *remainder in (*_FITTED, *_CHECKED)]
    totals: dict[str, list[dict[str, float]]] = {"tasks": [], "driver": []}
    for number, load in enumerate(loads):
        run = traced(load)
        tasks, driver = totals_of(run.tasks), totals_of(run.driver)
        totals["tasks"].append(tasks)
        totals["driver"].append(driver)
        parts = {**{f"tasks_{k}": v for k, v in tasks.items()}, **{f"driver_{k}": v for k, v in driver.items()}}
        kind = "fitted" if number < len(_FITTED) else "checked"
        seconds = tasks["cpu_s"] + driver["cpu_s"]
        samples.append(Sample(f"{kind}_{place}", load.datasets, load.files, number, round(seconds, 6), parts))
        tell(f"{place}, {load}: {parts}")
    models = {side: Model(loads[: len(_FITTED)], costs[: len(_FITTED)]) for side, costs in totals.items()}
    for cost in _COSTS:
        for name, value in zip(("task", "bucket", "dataset", "file"), models["tasks"].costs[cost][1:], strict=True):
            ratios.count(f"model_{place}_{cost}_per_{name}", value * (1000 if cost == "cpu_s" else 1))
        errors = [
            abs(models["tasks"].of(load)[cost] / true[cost] - 1)
            for load, true in zip(loads[len(_FITTED) :], totals["tasks"][len(_FITTED) :], strict=True)
            if true[cost]
        ]
        ratios.count(f"model_{place}_{cost}_error", max(errors, default=0.0))
    return models


def _tabulate(
    place: str, models: dict[str, Model], latency_s: float, rate_per_s: float, parallel: int, ratios: Ratios
) -> None:
    """Print the costs of the large job there."""
    tasks, driver = models["tasks"].of(_TARGET), models["driver"].of(_TARGET)
    for cost in _COSTS:
        ratios.count(f"table_{place}_{cost}", tasks[cost] + driver[cost])
    by_rate = (tasks["writes"] + driver["writes"]) / rate_per_s
    ratios.count(f"table_{place}_s_by_rate", by_rate)
    serial = driver["calls"] * latency_s + driver["cpu_s"]
    for name, at_once in (("one_call", 1), ("all_calls", parallel)):
        own = (tasks["calls"] * latency_s / at_once + tasks["cpu_s"]) / _TARGET_EXECUTORS
        ratios.count(f"table_{place}_s_{name}", max(serial + own, by_rate))


def _simulate(asked: Asked, folder: Path, ratios: Ratios, samples: list[Sample], tell: Tell) -> None:
    """Simulate runs of one size on each number of executors, with the product's number of tasks for that many slots."""
    around = Surroundings(asked.hdfs_ms / 1000, asked.service_ms / 1000, asked.launch_ms / 1000)
    alone, bend = 0.0, 0
    for executors in (1, *asked.executors):
        load = Load(asked.datasets, 1, asked.buckets, min(2 * executors, asked.buckets))
        with TemporaryDirectory(prefix="growth-", dir=folder) as root:
            laid = lay_out(traced_run(LocalFileSystem(), root, load, syncs=False), executors, around)
        parts = {
            "driver_share": laid.driver_s / laid.seconds,
            "server_share": laid.busy_s / laid.seconds,
            "imbalance": laid.imbalance,
        }
        samples.append(Sample(f"virtual_{executors}_executors", load.datasets, 1, 0, round(laid.seconds, 6), parts))
        tell(f"{executors} executors: {laid}")
        if executors == 1:
            alone = laid.seconds
            continue
        speed_up = alone / laid.seconds
        if not bend and speed_up < _BEND * executors:
            bend = executors
        ratios.count(f"virtual_speed_up_{executors}_executors", speed_up)
        ratios.count(f"virtual_speed_up_over_linear_{executors}_executors", speed_up / executors)
        for name, value in parts.items():
            ratios.count(f"virtual_{name}_{executors}_executors", value)
    ratios.count("virtual_bend_executors", float(bend))
