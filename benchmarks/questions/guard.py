"""Slowdowns of today's tree against a commit, in small paired samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.arms.guarded_tree import HERE, GuardedTree, UnmeasurableError, worktree
from benchmarks.noise import Ratios, compare, seconds_of
from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import Tell
from benchmarks.workloads.guarded import SAMPLES

MARGIN = 0.03
"""A tree is slower if it is slower by more than that, with confidence."""
WIDEST = 1.2
"""The bound: if an interval's upper end exceeds its lower one by this factor, the result is inconclusive."""
_PAIRS_A_PROCESS = 4
_NOTES = [
    "one pair after the other, the trees take turns at being first; processes are new after every fourth pair, with "
    "one seed for hashes, and the first sample of a kind in each is left out",
    "the ratio is the median of the pairs' quotients; low and high are the interval of the sign test, which assumes "
    "nothing of how times are distributed, with the confidence that is given (95 % or more from six pairs on)",
    f"slower: by processor time, low is above {1 + MARGIN}; faster: high is below {1 - MARGIN}; even if all five kinds "
    "were just on that margin, at most one guard in eight would call any of them slower",
    f"noise: high is more than {WIDEST} times low; wall time is told, and decides nothing",
    f"calls: of the kernel, the same each time; more than {1 + MARGIN} times as many is slower, too",
    "in one process, without Spark and Kafka, and without waiting for the disk: syncs are counted and not made",
]


def guard(
    *,
    against: str,
    pairs: int,
    datasets: int,
    only: Sequence[str],
    folder: Path,
    tell: Tell,
    trees: Mapping[str, Path] | None = None,
) -> Results:
    """Measure both trees.

    Args:
        against: the reference commit.
        pairs: of samples of each kind.
        datasets: of each sample.
        only: kinds of samples; empty for all.
        folder: on the measured disk.
        tell: receives each pair.
        trees: existing folders of `today` and `against`, which are then not taken from Git.

    Raises:
        UnmeasurableError: if there is no such commit.
    """
    kinds = [kind for kind in SAMPLES if not only or kind in only]
    ratios, samples, notes = Ratios(WIDEST), list[Sample](), list(_NOTES)
    with ExitStack() as stack:
        if trees is None:
            tree, name = stack.enter_context(worktree(against))
            trees = {"today": HERE, "against": tree}
        else:
            name = against
        for kind in kinds:
            try:
                samples += _pairs(kind, trees, pairs, datasets, folder, tell)
            except UnmeasurableError as error:
                ratios.leave_out(f"{kind}_cpu_today_over_against", str(error))
                continue
            notes.append(_judge(kind, samples, ratios))
    verdicts = [ratios.found.get(f"{kind}_slower") for kind in kinds]
    ratios.count("slower", float(sum(verdict or 0 for verdict in verdicts)))
    return results_of(
        "guard",
        ratios.found,
        samples,
        seed=0,
        folder=folder,
        parameters={"against": name, "pairs": pairs, "datasets": datasets},
        skipped=ratios.reasons,
        notes=notes,
        noisy=None in verdicts,
    )


def _pairs(kind: str, trees: Mapping[str, Path], pairs: int, datasets: int, folder: Path, tell: Tell) -> list[Sample]:
    samples: list[Sample] = []
    for begin in range(0, pairs, _PAIRS_A_PROCESS):
        with ExitStack() as stack:
            processes = {name: stack.enter_context(GuardedTree(tree, folder)) for name, tree in trees.items()}
            for repeat in range(begin, min(pairs, begin + _PAIRS_A_PROCESS)):
                order = sorted(trees, reverse=bool(repeat % 2))
                took = {name: processes[name].sample(kind, datasets) for name in order}
                for name, seconds in took.items():
                    parts = {"cpu_s": round(seconds["cpu"], 6), "calls": seconds["calls"]}
                    samples.append(Sample(f"{kind}_{name}", datasets, 1, repeat, round(seconds["wall"], 6), parts))
                summary = ", ".join(f"{name} {seconds['cpu']:.3f} s" for name, seconds in sorted(took.items()))
                tell(f"{kind} #{repeat + 1}: {summary} of processor")
    return samples


def _judge(kind: str, samples: Sequence[Sample], ratios: Ratios) -> str:
    """Return the conclusion from the pairs of a kind, in a line."""
    today, against = f"{kind}_today", f"{kind}_against"
    ratios.pairs(f"{kind}_wall_today_over_against", seconds_of(samples, today), seconds_of(samples, against))
    sides = seconds_of(samples, today, "cpu_s"), seconds_of(samples, against, "cpu_s")
    ratios.pairs(f"{kind}_cpu_today_over_against", *sides)
    calls = _calls(samples, today) / _calls(samples, against)
    ratios.count(f"{kind}_calls_today_over_against", calls)
    compared = compare(*sides, WIDEST)
    if compared.noise and calls <= 1 + MARGIN:
        ratios.leave_out(f"{kind}_slower", compared.noise)
        return f"{kind}: nothing can be said, {compared.noise}"
    interval = compared.interval
    slower = calls > 1 + MARGIN or interval.low > 1 + MARGIN
    ratios.count(f"{kind}_slower", float(slower))
    verdict = "slower" if slower else "faster" if interval.high < 1 - MARGIN else "no change that is sure"
    return (
        f"{kind}: {verdict}: {interval.centre:.3f} times the processor time, between {interval.low:.3f} and"
        f" {interval.high:.3f} with a confidence of {interval.confidence:.1%}; {calls:.3f} times the calls"
    )


def _calls(samples: Sequence[Sample], arm: str) -> float:
    return median(seconds_of(samples, arm, "calls"))
