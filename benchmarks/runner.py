"""Arms in turn, each on a tree of its own; a time counts only if the result was right."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from benchmarks.results import Sample
from benchmarks.workloads.tree import Shape, digest_of, expected_digest

Parts = dict[str, float]
"""Costs of one execution. `seconds` is the time that counts; the others explain it."""
Tell = Callable[[str], None]


class Arm(ABC):
    """A way of publishing a tree."""

    name: str

    def missing(self) -> str:
        """Return why this arm cannot run here; empty if it can."""
        return ""

    @abstractmethod
    def publish(self, shape: Shape, root: Path) -> Parts:
        """Prepare its tree below the empty folder `root`, publish it to `root/output`, and return the costs.

        Preparing, checking and cleaning up are not part of the time; creating and removing the folders of the data is.

        Raises:
            WrongResultError: if it finds that the published files are not the tree.
        """

    def digest(self, root: Path) -> str:
        """Return the digest of the published files."""
        return digest_of(root / "output")

    def expected(self, shape: Shape) -> str:
        """Return the required digest."""
        return expected_digest(shape)


class WrongResultError(Exception):
    """An arm's output is not the required one; its time means nothing."""


def alternate(
    arms: Iterable[Arm],
    shape: Shape,
    repeats: int,
    folder: Path,
    tell: Tell,
    at_most: Mapping[str, int] = MappingProxyType({}),
) -> list[Sample]:
    """Return `repeats` samples of each arm; the arms take turns, and another one begins each time.

    `at_most` limits the datasets of the arms that it names.

    Raises:
        WrongResultError: if an arm's result is not the expected one.
    """
    listed, samples = list(arms), []
    for repeat in range(repeats):
        first = repeat % max(1, len(listed))
        for arm in listed[first:] + listed[:first]:
            own = replace(shape, datasets=min(shape.datasets, at_most.get(arm.name, shape.datasets)))
            began = time.perf_counter()
            sample = measure(arm, own, repeat, folder)
            whole = time.perf_counter() - began
            tell(
                f"{arm.name} {own.datasets} x {own.files} #{repeat + 1}: {sample.seconds:.3f} s, "
                f"{whole:.0f} s with preparation and check"
            )
            samples.append(sample)
    return samples


def measure(arm: Arm, shape: Shape, repeat: int, folder: Path) -> Sample:
    """Return one sample of an arm."""
    with scratch(folder) as root:
        gc.collect()
        parts = arm.publish(shape, root)
        actual, expected = arm.digest(root), arm.expected(shape)
        if actual != expected:
            raise WrongResultError(f"{arm.name} published {actual}, expected {expected}")
    seconds = parts.pop("seconds")
    rounded = {name: round(value, 6) for name, value in parts.items()}
    return Sample(arm.name, shape.datasets, shape.files, repeat, round(seconds, 6), rounded)


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that is deleted durably afterwards, so that the next arm does not pay for it."""
    root = Path(tempfile.mkdtemp(prefix="benchmark-", dir=folder))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
        os.sync()
