"""The cost of recovery: with nothing pending after a long history, and with N datasets pending."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.arms.executors import measure_executors, speed_ups
from benchmarks.arms.ours import Ours
from benchmarks.arms.recovery import Recovery
from benchmarks.results import Results, medians, results_of
from benchmarks.runner import Arm, Tell, WrongResultError, alternate, scratch
from benchmarks.session import spark_session
from benchmarks.workloads.counting import CountingCalls
from benchmarks.workloads.ingested import JOB, roots_of, run_settings
from benchmarks.workloads.source import NumberedSource
from benchmarks.workloads.tree import Shape
from distcommit.engine.driver.run import recover, run
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.state.job_store import open_store
from tests.simulation.world import launch_here


def recovery(
    sizes: Sequence[int],
    files: int,
    *,
    buckets: int,
    history: int,
    repeats: int,
    executors: Sequence[int],
    delay_ms: float,
    seed: int,
    folder: Path,
    tell: Tell,
) -> Results:
    """Measure recovery and a full commit at each size, and count the operations of recovery with nothing pending.

    Args:
        sizes: numbers of pending datasets.
        files: files of each.
        buckets: buckets of the store.
        history: the number of earlier runs when nothing is pending.
        repeats: samples of each.
        executors: numbers of executors that recover the smallest size with slow metadata operations.
        delay_ms: their duration.
        seed: of the names.
        folder: on the measured disk.
        tell: receives each sample.
    """
    with spark_session() as (spark, partitions):
        arms: list[Arm] = [
            Ours(spark, partitions),
            Recovery(spark, partitions, "recover_untouched", 0.0),
            Recovery(spark, partitions, "recover_half_done", 0.5),
        ]
        samples = [
            sample
            for datasets in sizes
            for sample in alternate(arms, Shape(datasets, files, buckets, seed), repeats, folder, tell)
        ]
    on_executors = measure_executors(
        "recover",
        executors,
        lambda spark, fs, latency: Recovery(spark, buckets, "recover", 0.0, fs=fs, latency=latency),
        Shape(min(sizes), files, buckets, seed),
        delay_ms=delay_ms,
        repeats=repeats,
        folder=folder,
        tell=tell,
    )
    seconds, smallest = medians(samples, max(sizes)), medians(samples, min(sizes))
    ratios = {
        "recover_untouched_over_commit": seconds["recover_untouched"] / seconds["ours"],
        "recover_half_done_over_commit": seconds["recover_half_done"] / seconds["ours"],
    }
    if len(sizes) > 1:
        growth = max(sizes) / min(sizes)
        ratios["recover_untouched_growth_over_linear"] = (
            seconds["recover_untouched"] / smallest["recover_untouched"] / growth
        )
    ratios |= speed_ups(on_executors, executors)
    ratios |= nothing_pending(min(sizes), buckets, history, folder, tell)
    return results_of(
        "recovery",
        ratios,
        samples + on_executors,
        seed=seed,
        folder=folder,
        parameters={
            "sizes": list(sizes),
            "files": files,
            "buckets": buckets,
            "history": history,
            "repeats": repeats,
            "executors": list(executors),
            "delay_ms": delay_ms,
        },
        notes=[
            "half done: each bucket was struck when half of its datasets were published",
            "executors: each metadata operation waits in a server process, one at a time in each executor",
        ],
    )


def nothing_pending(datasets: int, buckets: int, history: int, folder: Path, tell: Tell) -> dict[str, float]:
    """Return operations and seconds of recovery after one run and after `history` runs.

    Each of them published everything and ended, as the command's runs do.
    """
    costs: dict[int, tuple[float, float]] = {}
    with scratch(folder) as root:
        calls = CountingCalls(root=str(root))
        fs = LocalFileSystem(calls, durable=False)
        store = open_store(fs, roots_of(root), JOB, buckets, create=True)
        for number in range(1, history + 1):
            settings = run_settings(store, NumberedSource(datasets, 1, number), 1)
            result = run(launch_here, settings)
            end_run(store, settings.epoch, clean=result.succeeded)
            if result.totals.datasets_published != datasets:
                raise WrongResultError(f"run {number} published {result.totals.datasets_published} of {datasets}")
            if number in (1, history):
                costs[number] = _idle_recovery(fs, root, calls)
                tell(f"nothing pending after {number} runs: {costs[number]}")
    return {
        "nothing_pending_operations_per_bucket": costs[history][0] / buckets,
        "nothing_pending_operations_over_those_after_one_run": costs[history][0] / costs[1][0],
        "nothing_pending_s": costs[history][1],
    }


def _idle_recovery(fs: LocalFileSystem, root: Path, calls: CountingCalls) -> tuple[float, float]:
    """Return operations and seconds from opening the store to the end of recovery; the median of three."""
    counted: list[tuple[float, float]] = []
    for _ in range(3):
        before, began = calls.calls.total(), time.perf_counter()
        settings = run_settings(open_store(fs, roots_of(root), JOB, create=False), NumberedSource(0), 1)
        recover(launch_here, settings)
        counted.append((float(calls.calls.total() - before), time.perf_counter() - began))
        end_run(settings.store, settings.epoch, clean=False)
    return median(operations for operations, _ in counted), median(seconds for _, seconds in counted)
