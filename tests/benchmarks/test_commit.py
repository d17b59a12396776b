"""Every arm publishes the same tree, and is measured on its stated operations."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.arms.bare import BareRename
from benchmarks.arms.gobblin import CALLS_PER_DATASET, CALLS_PER_FILE
from benchmarks.questions.commit import all_arms, ratios
from benchmarks.results import Sample, slope
from benchmarks.runner import Parts, WrongResultError, alternate, measure
from benchmarks.workloads.tree import Shape, file_bytes, tree_datasets

TINY = Shape(datasets=6, files=3, buckets=4)
ARMS = (
    *("bare_1p", "bare_1p_sync", "bare_2p", "bare_2p_sync", "bare_2p_sync_while_writing"),
    *("bare_into_folders_2p", "bare_into_folders_2p_sync", "bare_folders_2p_sync"),
    *("ours", "ours_into_folders", "ours_not_durable", "ours_while_writing"),
    *("gobblin", "gobblin_fsync", "gobblin_20t", "gobblin_fsync_20t", "file_per_step_fsync"),
    *("v1", "v1_new_folders", "v2", "manifest", "deltalake", "deltalake_one_table", "pyiceberg"),
)
_COUNTED = re.compile(r"^(?:\d+ +)?(?P<call>\w+)\((?P<rest>.*)")


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_publishes_the_tree(name: str, spark: SparkSession, tmp_path: Path) -> None:
    arms = {arm.name: arm for arm in all_arms(spark, 2)}
    assert tuple(sorted(arms)) == tuple(sorted(ARMS))
    if reason := arms[name].missing():
        pytest.skip(reason)
    sample = measure(arms[name], TINY, 0, tmp_path)
    assert sample.parts.get("wall_s", sample.seconds) > 0  # the time of no-op jobs exceeds that of so small a tree
    assert not list(tmp_path.iterdir())


def test_wrong_result_is_not_a_sample(tmp_path: Path) -> None:
    class Lossy(BareRename):
        def publish(self, shape: Shape, root: Path) -> Parts:
            parts = super().publish(shape, root)
            folder = next((root / "output").iterdir())
            next(folder.iterdir()).write_bytes(b"other bytes")
            return parts

    with pytest.raises(WrongResultError, match="bare_1p published 18 files"):
        measure(Lossy(1), TINY, 0, tmp_path)


def test_arms_take_turns(tmp_path: Path) -> None:
    arms = [BareRename(1), BareRename(2)]
    samples = alternate(arms, TINY, 3, tmp_path, lambda text: None)
    assert [s.arm for s in samples] == ["bare_1p", "bare_2p", "bare_2p", "bare_1p", "bare_1p", "bare_2p"]


def test_slow_arms_get_fewer_datasets(tmp_path: Path) -> None:
    arms = [BareRename(1), BareRename(2)]
    samples = alternate(arms, TINY, 1, tmp_path, lambda text: None, {"bare_1p": 2, "bare_2p": 100})
    assert {sample.arm: sample.datasets for sample in samples} == {"bare_1p": 2, "bare_2p": TINY.datasets}


def test_ratios_are_of_medians() -> None:
    def samples(arm: str, datasets: int, *seconds: float) -> list[Sample]:
        parts = {"job_stage_s": seconds[0] / 2}
        return [Sample(arm, datasets, 20, repeat, value, parts) for repeat, value in enumerate(seconds)]

    values = ratios(
        [
            *(*samples("ours", 10, 1.2, 1.0, 9.0), *samples("bare_2p", 10, 1.0, 1.0, 1.0)),
            *(*samples("manifest", 10, 12.0, 12.0), *samples("gobblin", 10, 6.0)),
            *samples("file_per_step_fsync", 5, 10.0),  # of fewer datasets
            *(*samples("ours", 40, 4.5), *samples("bare_2p", 40, 4.0)),
        ],
        10,
        40,
    )
    assert values == pytest.approx(
        {
            "ours_over_bare_2p": 1.2,
            "manifest_over_ours": 10.0,
            "manifest_job_stage_over_ours": 5.0,
            "gobblin_over_ours": 5.0,
            "file_per_step_fsync_over_ours": 2.0 / 0.12,
            "marginal_ours_over_bare_2p": 1.1,
        }
    )


def test_names_and_bytes_come_from_the_seed_alone() -> None:
    assert list(tree_datasets(TINY)) == list(tree_datasets(TINY))
    assert len({file_bytes(number) for number in range(300)}) == 300


@pytest.mark.parametrize("files", [1, 5])
def test_original_design_costs_the_stated_figures(files: int, tmp_path: Path) -> None:
    """System calls per dataset, as the slope between two sizes: the interpreter's own drop out."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from benchmarks.arms.gobblin import commit_dataset\n"
        "from benchmarks.workloads.tree import Shape, tree_datasets, write_staged\n"
        "shape, root = Shape(int(sys.argv[1]), int(sys.argv[2]), 4), Path(sys.argv[3])\n"
        "write_staged(shape, root)\n"
        "[(root / name).mkdir() for name in ('store', 'state')]\n"
        "Path('/begin').exists()\n"
        "for one in tree_datasets(shape): commit_dataset(str(root), one, shape.files, fsync=False)\n"
        "Path('/end').exists()\n"
    )
    points = []
    for datasets in (3, 7):
        root, trace = tmp_path / f"tree-{datasets}", tmp_path / f"trace-{datasets}"
        subprocess.run(
            [
                *("strace", "-f", "-qq", "-e", "trace=file,desc", "-o", str(trace)),
                *(sys.executable, "-c", program, str(datasets), str(files), str(root)),
            ],
            check=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        window = trace.read_text().partition('"/begin"')[2].partition('"/end"')[0].splitlines()[1:-1]
        calls = Counter(match["call"] for line in window if (match := _COUNTED.match(line)) is not None)
        assert calls["rename"] == datasets * (files + 1)
        points.append((float(datasets), float(calls.total())))
    assert slope(points) == CALLS_PER_DATASET + CALLS_PER_FILE * files
