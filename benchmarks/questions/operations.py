"""The operations of a commit for each dataset and for each file, as slopes over D, so that operations of the run or
of a bucket drop out."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.results import Results, Sample, results_of, slope
from benchmarks.runner import Tell, WrongResultError, scratch
from benchmarks.workloads.counting import CountingCalls
from benchmarks.workloads.ingested import ingested
from benchmarks.workloads.tree import Shape, digest_of, expected_digest, make_folders
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.task_reports import Report
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from tests.simulation.world import launch_here

_FOR_FOLDERS = ("mkdir", "rmdir")
_LOG = "store/log"
WINDOW = ("/begin-of-the-window", "/end-of-the-window")
"""Names that a traced program requests when the window begins and ends."""


def operations(sizes: Sequence[int], files: int, *, buckets: int, seed: int, folder: Path, tell: Tell) -> Results:
    """Count the calls of the drain job at each of the sizes, in one process.

    Args:
        sizes: numbers of datasets, two at least, all of them large enough that every bucket has many.
        files: files of each dataset.
        buckets: buckets of the store.
        seed: of the names.
        folder: on the used disk.
        tell: receives the counts.

    Both deliveries are counted. The savings of at-least-once come by the bucket, so its ratios are of all calls and
    bytes at the largest size.
    """
    shapes = [Shape(datasets, files, buckets, seed) for datasets in sizes]
    counted = [count_calls(shape, folder, tell) for shape in shapes]
    one_by_one = [count_calls(shape, folder, tell, into_folders=True) for shape in shapes]
    at_least_once = [
        count_calls(shapes[-1], folder, tell, into_folders=into_folders, at_least_once=True)
        for into_folders in (False, True)
    ]
    calls = _calls(counted)
    ratios = {
        "log_bytes_per_dataset": _slope(counted, "log_bytes"),
        "at_least_once_calls_over_exactly_once": _all_calls(at_least_once[0]) / _all_calls(counted[-1]),
        "into_folders_at_least_once_calls_over_exactly_once": _all_calls(at_least_once[1]) / _all_calls(one_by_one[-1]),
        "at_least_once_log_bytes_over_exactly_once": at_least_once[0].parts["log_bytes"]
        / counted[-1].parts["log_bytes"],
        **_by_kind(calls, files),
        **{f"into_folders_{name}": value for name, value in _by_kind(_calls(one_by_one), files).items()},
    }
    counted += one_by_one + at_least_once
    skipped: dict[str, str] = {}
    if shutil.which("strace") is None:
        skipped["strace"] = "strace is not installed"
    else:
        traced = [trace_calls(Shape(datasets, files, buckets, seed), folder, tell) for datasets in sizes]
        counted += traced
        for name in sorted({name for sample in traced for name in sample.parts}):
            ratios[f"strace_{name.removeprefix('calls_')}_per_dataset"] = _slope(traced, name)
    return results_of(
        "operations",
        ratios | {f"{n}_per_dataset": v for n, v in calls.items() if v},
        counted,
        seed=seed,
        folder=folder,
        parameters={"sizes": list(sizes), "files": files, "buckets": buckets},
        skipped=skipped,
        notes=["counted in one process; slopes over the number of datasets, so that calls for each bucket drop out"],
    )


def _all_calls(sample: Sample) -> float:
    return sum(value for name, value in sample.parts.items() if name.startswith("calls_"))


def _calls(counted: Sequence[Sample]) -> dict[str, float]:
    names = sorted({name for sample in counted for name in sample.parts if name.startswith("calls_")})
    return {name.removeprefix("calls_"): _slope(counted, name) for name in names}


def _by_kind(calls: dict[str, float], files: int) -> dict[str, float]:
    return {
        "renames_per_dataset": calls.get("rename", 0.0),
        "renames_per_file": calls.get("rename", 0.0) / files,
        "stats_per_dataset": calls.get("lstat", 0.0),
        "mkdirs_per_dataset": calls.get("mkdir", 0.0),
        "rmdirs_per_dataset": calls.get("rmdir", 0.0),
        "other_calls_per_added_dataset": sum(
            value for name, value in calls.items() if name not in (*_FOR_FOLDERS, "rename", "lstat")
        ),
        "calls_per_added_dataset": sum(calls.values()),
    }


def count_calls(
    shape: Shape, folder: Path, tell: Tell, *, into_folders: bool = False, at_least_once: bool = False
) -> Sample:
    """Count the calls of one drain below the product's file system.

    With `into_folders` the datasets' folders exist, so that files are renamed one by one.
    """
    with scratch(folder) as root:
        if into_folders:
            make_folders(shape, root)
        calls = CountingCalls(root=str(root))
        seconds = drain_here(shape, root, calls, at_least_once=at_least_once)
    parts = {f"calls_{name}": float(count) for name, count in sorted(calls.calls.items())}
    parts["log_bytes"] = float(sum(size for place, size in calls.bytes_written.items() if place == _LOG))
    tell(f"{shape.datasets} x {shape.files}: {dict(calls.calls)}")
    arm = f"ours{'_at_least_once' if at_least_once else ''}{'_into_folders' if into_folders else ''}"
    return Sample(arm, shape.datasets, shape.files, 0, seconds, parts)


def drain_here(shape: Shape, root: Path, calls: CountingCalls, *, at_least_once: bool = False) -> float:
    """Prepare a run below `root` and drain it in this process through these calls; return the seconds of the drain.

    Raises:
        WrongResultError: if not all of it is published.
    """
    settings = replace(ingested(shape, root, 1, LocalFileSystem(calls)), at_least_once=at_least_once)
    Path(WINDOW[0]).exists()
    began = time.perf_counter()
    reports = launch_here(drain_partition, settings, 1, Report)
    seconds = time.perf_counter() - began
    Path(WINDOW[1]).exists()
    digest = digest_of(root / "output")
    if digest != expected_digest(shape) or reports[0].counts.datasets_published != shape.datasets:
        raise WrongResultError(f"published {digest}, expected {expected_digest(shape)}")
    return seconds


def trace_calls(shape: Shape, folder: Path, tell: Tell) -> Sample:
    """Count the system calls on files of one drain, by strace."""
    with scratch(folder) as root:
        trace, tree = root / "trace", root / "tree"
        tree.mkdir()
        arguments = [str(shape.datasets), str(shape.files), str(shape.buckets), str(shape.seed), str(tree)]
        subprocess.run(
            [
                *("strace", "-f", "-qq", "-e", "trace=file,desc,fsync,syncfs", "-o", str(trace)),
                *(sys.executable, "-m", "benchmarks.questions.traced", *arguments),
            ],
            check=True,
        )
        calls = calls_in_window(trace.read_text(errors="replace"))
    parts = {f"calls_{name}": float(count) for name, count in sorted(calls.items())}
    tell(f"{shape.datasets} x {shape.files}, strace: {dict(calls)}")
    return Sample("ours_strace", shape.datasets, shape.files, 0, 0.0, parts)


def calls_in_window(trace: str) -> Counter[str]:
    """Return system calls by name between the two marks of a trace made with `strace -f`."""
    window = trace.partition(f'"{WINDOW[0]}"')[2].partition(f'"{WINDOW[1]}"')[0].splitlines()[1:-1]
    words = (line.split(maxsplit=1)[-1] for line in window)
    return Counter(word.partition("(")[0] for word in words if "(" in word and not word.startswith(("<", "+", "-")))


def _slope(samples: Sequence[Sample], name: str) -> float:
    return slope((float(sample.datasets), sample.parts.get(name, 0.0)) for sample in samples)
