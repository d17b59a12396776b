"""The guard detects slowdowns, reports uncertainty, and refuses trees that it cannot measure."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.arms import guarded_tree
from benchmarks.arms.guarded_tree import HERE, GuardedTree, UnmeasurableError, worktree
from benchmarks.cli import app
from benchmarks.noise import Ratios
from benchmarks.questions.guard import _judge, guard
from benchmarks.results import Sample
from benchmarks.workloads.guarded import SAMPLES

_MORE_CALLS = """
_as_it_was = drain_partition


def drain_partition(settings, partition):
    for bucket in range(settings.store.buckets):
        for _ in range(200):
            settings.store.fs.list_folder(settings.store.bucket_log(bucket).folder)
    return _as_it_was(settings, partition)
"""


def pairs(today: list[float], against: list[float], calls: float = 100.0) -> list[Sample]:
    sides = {"today": (today, calls), "against": (against, 100.0)}
    return [
        Sample(f"commit_{side}", 16, 1, repeat, seconds, {"cpu_s": seconds, "calls": counted})
        for side, (listed, counted) in sides.items()
        for repeat, seconds in enumerate(listed)
    ]


@pytest.mark.parametrize(
    ("today", "calls", "verdict", "slower"),
    [
        ([1.10, 1.11, 1.12, 1.09, 1.10, 1.11], 100, "slower", 1),
        ([1.02, 1.02, 1.02, 1.02, 1.02, 1.02], 100, "no change that is sure", 0),
        ([0.90, 0.91, 0.92, 0.90, 0.91, 0.90], 100, "faster", 0),
        ([1.00, 1.01, 1.00, 0.99, 1.00, 1.00], 110, "slower", 1),
        ([1.00, 1.60, 0.80, 1.30, 1.00, 2.00], 100, "nothing can be said, noise", None),
        ([1.10, 1.10], 100, "nothing can be said, 2 samples are too few", None),
    ],
)
def test_a_verdict_goes_by_the_whole_interval(
    today: list[float], calls: float, verdict: str, slower: float | None
) -> None:
    ratios = Ratios()
    conclusion = _judge("commit", pairs(today, [1.0] * len(today), calls), ratios)
    assert f"commit: {verdict}" in conclusion
    assert ratios.found["commit_slower"] == slower


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_each_sample_is_one_of_this_tree(name: str, tmp_path: Path) -> None:
    root = tmp_path / "sample"
    root.mkdir()
    took = SAMPLES[name](16, root)
    assert took["wall"] > 0
    assert took["calls"] > 16


def test_missing_commit_is_refused(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["guard", "--against", "no-such-commit", "--folder", str(tmp_path)])
    assert answer.exit_code == 2
    assert "no-such-commit" in answer.output


def test_tree_that_cannot_be_measured_reports_why(tmp_path: Path) -> None:
    (tmp_path / "distcommit").mkdir()
    (tmp_path / "distcommit" / "__init__.py").write_text("raise ImportError('too old')")
    with GuardedTree(tmp_path, tmp_path) as tree, pytest.raises(UnmeasurableError, match="too old"):
        tree.sample("commit", 16)


@pytest.mark.slow
def test_tree_with_more_requests_is_slower(tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    for package in ("distcommit", "benchmarks", "tests"):
        shutil.copytree(HERE / package, changed / package, ignore=shutil.ignore_patterns("__pycache__", "results"))
    with (changed / "distcommit" / "engine" / "committing" / "drain.py").open("a") as file:
        file.write(_MORE_CALLS)
    trees = {"today": changed, "against": HERE}
    results = guard(
        against="as it was", pairs=3, datasets=16, only=["commit"], folder=tmp_path, tell=print, trees=trees
    )
    assert results.ratios["slower"] == 1
    assert results.ratios["commit_calls_today_over_against"] > 1.03


@pytest.mark.slow
def test_commit_is_measured_in_a_temporary_worktree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"  # this tree may not be a repository
    for name in ("distcommit", "benchmarks", "tests"):
        shutil.copytree(HERE / name, repository / name, ignore=shutil.ignore_patterns("__pycache__"))
    me = ("-c", "user.name=guard", "-c", "user.email=guard@localhost")
    for command in (("init", "-q"), ("add", "--all"), (*me, "commit", "-q", "-m", "all of it")):
        subprocess.run(["git", *command], cwd=repository, check=True)
    monkeypatch.setattr(guarded_tree, "HERE", repository)
    with worktree("HEAD") as (tree, name):
        assert len(name) == 40
        assert (tree / "distcommit" / "__init__.py").exists()
        with GuardedTree(tree, tmp_path) as measured:
            assert measured.sample("idle", 16)["cpu"] > 0
    assert not tree.exists()
