"""All drills by name, each with the remedies that it proves."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.drills.drill import Drilled

Make = Callable[[Path], Drilled]


@dataclass(frozen=True, slots=True)
class Drill:
    """A broken situation, created in an empty folder and resolved.

    `remedies`: ids of the problems and errors whose remedy the drill types. After an error's id, a part of the printed
    remedy may follow.
    `is_quick`: whether it runs in this process and its Spark session, in seconds.
    """

    name: str
    make: Make
    remedies: tuple[str, ...]
    is_quick: bool


_DRILLS: dict[str, Drill] = {}


def drill(*remedies: str, quick: bool = False) -> Callable[[Make], Make]:
    """Register a drill under its function's name.

    Args:
        remedies: as of `Drill`.
        quick: as `Drill.is_quick`.
    """

    def registered(make: Make) -> Make:
        _register(make.__name__, make, remedies, is_quick=quick)
        return make

    return registered


def drill_of(
    *remedies: str, kinds: Sequence[str], quick: bool = False
) -> Callable[[Callable[[Path, str], Drilled]], Callable[[Path, str], Drilled]]:
    """Register a drill for each of these kinds, which its function is called with.

    Args:
        remedies: as of `Drill`.
        kinds: the last part of each drill's name.
        quick: as `Drill.is_quick`.
    """

    def registered(make: Callable[[Path, str], Drilled]) -> Callable[[Path, str], Drilled]:
        for kind in kinds:
            _register(f"{make.__name__}_{kind}", partial(_of_kind, make, kind), remedies, is_quick=quick)
        return make

    return registered


def _of_kind(make: Callable[[Path, str], Drilled], kind: str, folder: Path) -> Drilled:
    return make(folder, kind)


def _register(of: str, make: Make, remedies: tuple[str, ...], *, is_quick: bool) -> None:
    name = of.replace("_", "-")
    if name in _DRILLS:
        raise ValueError(f"two drills are named {name}")
    _DRILLS[name] = Drill(name, make, remedies, is_quick)


def drills() -> dict[str, Drill]:
    """Return all drills of this package's modules by name."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name not in ("__main__", "test_drills"):
            importlib.import_module(f"{__package__}.{module.name}")
    return _DRILLS
