"""Settings that some datasets have of their own."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar


class Matching(Protocol):
    """Settings of some datasets."""

    @property
    def match(self) -> str:
        """Their names, with `*` and `?`."""


Own = TypeVar("Own", bound=Matching)


def own_of(name: str, datasets: Iterable[Own]) -> Own | None:
    """Those of a dataset, the first that match it; None if it has none of its own."""
    return next((each for each in datasets if fnmatchcase(name, each.match)), None)
