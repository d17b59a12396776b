"""The cost of inspecting a store of very many datasets by operator commands, and of opening its newest snapshot as a
reader."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import Tell, WrongResultError, scratch
from tests.jobs.large_store import make_large_store

_COMMANDS: dict[str, Sequence[str]] = {
    "status": ["status"],
    "status_json": ["status", "--json"],
    "datasets": ["dataset list"],
    "runs": ["runs"],
}
_ALONE = """
import json, os, subprocess, sys, time
began_s = time.perf_counter()
process = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], "wb"))
_, status, used = os.wait4(process.pid, 0)
print(json.dumps({"seconds": time.perf_counter() - began_s, "cpu_s": used.ru_utime + used.ru_stime,
                  "peak_mb": used.ru_maxrss * 1024 / 1e6, "code": os.waitstatus_to_exitcode(status)}))
"""
"""A process counts the memory of the one that it was forked from as its own peak: a small one starts each command."""
_OPEN_CUT = """
import json, sys, time
import distcommit
began_s, began_cpu_s = time.perf_counter(), time.process_time()
cut = distcommit.read(sys.argv[1])
took = {"open_s": time.perf_counter() - began_s, "open_cpu_s": time.process_time() - began_cpu_s}
print(json.dumps(took | {"datasets": len(cut.datasets)}))
"""


def looking(datasets: int, *, repeats: int, folder: Path, tell: Tell) -> Results:
    """Start each command on a store that the product's own classes have written; arms take turns.

    Args:
        datasets: the number of datasets; of each hundred one is pending, one quarantined, one was never read.
        repeats: samples of each; the median counts.
        folder: on the used disk.
        tell: receives each sample.
    """
    samples: list[Sample] = []
    with scratch(folder) as root:
        job_file = make_large_store(root / "job", datasets)
        for repeat in range(repeats):
            for arm in (*_COMMANDS, "open_cut"):
                parts = _sample(arm, job_file, datasets, root / "said")
                tell(f"{arm} of {datasets} #{repeat + 1}: {parts}")
                seconds = parts.pop("seconds")
                samples.append(Sample(arm, datasets, 2, repeat, round(seconds, 6), parts))
    return results_of(
        "looking",
        _ratios(samples),
        samples,
        seed=0,
        folder=folder,
        parameters={"datasets": datasets, "repeats": repeats},
        notes=[
            "seconds, processor seconds and MB (10^6 bytes, resident at most) of whole processes, Python's start and"
            " imports among them; open_cut: of `distcommit.read` alone, in a process that has imported it",
            "files are in the page cache",
        ],
    )


def _sample(arm: str, job_file: Path, datasets: int, said: Path) -> dict[str, float]:
    words = (
        ["-c", _OPEN_CUT, str(job_file)]
        if arm == "open_cut"
        else ["-m", "distcommit", *_COMMANDS[arm][0].split(), str(job_file), *_COMMANDS[arm][1:]]
    )
    command = [sys.executable, "-c", _ALONE, str(said), sys.executable, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    parts: dict[str, float] = json.loads(done.stdout)
    if parts.pop("code"):
        raise WrongResultError(f"{arm}: {done.stderr[-2000:]}")
    output = said.read_text()
    of_each_kind = -(-datasets // 100)  # of each kind that has one in a hundred
    if arm == "open_cut":
        opened = json.loads(output)
        parts |= {"seconds": opened["open_s"], "cpu_s": opened["open_cpu_s"], "datasets_in_it": opened["datasets"]}
        if not datasets - 3 * of_each_kind <= opened["datasets"] < datasets:
            raise WrongResultError(f"the cut has {opened['datasets']} of {datasets} datasets")
    if arm == "status_json" and (counted := sum(json.loads(output)["counts"].values())) != datasets:
        raise WrongResultError(f"status counts {counted} of {datasets} datasets")
    return {name: round(value, 4) for name, value in parts.items()}


def _ratios(samples: Sequence[Sample]) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for arm in dict.fromkeys(sample.arm for sample in samples):
        own = [sample for sample in samples if sample.arm == arm]
        figures[f"{arm}_s"] = median(sample.seconds for sample in own)
        figures[f"{arm}_cpu_s"] = median(sample.parts["cpu_s"] for sample in own)
        figures[f"{arm}_peak_mb"] = median(sample.parts["peak_mb"] for sample in own)
    return figures
