"""Which histories of the checkers come to which places in the product.

A fault can only be seen by a history that comes to where it stands. So the places of all faults are touched, the
checkers play a few histories of each scenario, program and cast, and what these come to is counted.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from distcommit.testing import explore, fault_histories, interleave
from distcommit.testing.casts import CASTS
from distcommit.testing.planting import Edit, touch
from distcommit.testing.programs import PROGRAMS
from distcommit.testing.scenarios import SCENARIOS

_PLAYED = {"explore": 3, "interleave": 3, "faults": 1}
"""How many histories of each name are looked at."""
_SOME = 3
"""Of the names of `faults` one in so many is looked at: their runs are those of `explore`, at errors besides."""
NAMES: dict[str, Sequence[str]] = {
    "explore": [*SCENARIOS, *PROGRAMS],
    "interleave": [*CASTS],
    "faults": [
        f"{name}:{lane}" for name in [*SCENARIOS, *fault_histories.PEOPLE][::_SOME] for lane in fault_histories.LANES
    ],
}
"""What each checker may choose from; of `faults` with the kind of history."""


class Reached(msgspec.Struct, frozen=True):
    """What a few histories of one name came to.

    Attributes:
        checker, name: whose histories.
        came: how often they came to each fault's place.
        differs: how often each fault would have made a difference there at once (see `planting.Touches`).
        seconds: processor time.
        tried: how many histories.
        wrong: the first one that broke the sound product, and how; empty for none.
    """

    checker: str
    name: str
    came: dict[str, int]
    differs: dict[str, int]
    seconds: float
    tried: int
    wrong: tuple[str, str] | None = None


class _Counts:
    """Counts what the product tells."""

    def __init__(self) -> None:
        self.times = Counter[str](), Counter[str]()

    def came(self, name: str) -> None:
        self.times[0][name] += 1

    def differs(self, name: str) -> None:
        self.times[1][name] += 1


def histories(checker: str, name: str, seed: int) -> Iterator[tuple[str, str]]:
    """A checker's histories of one name, and what is wrong after each, if anything."""
    if checker == "explore":
        return explore.recoveries([name], seed, explore.Findings())
    if checker == "interleave":
        return ((h, wrong) for h, _, wrong in interleave.plays([name], itertools.count(seed * 1_000_000)))
    scenario, lane = name.split(":")
    return ((h, fault_histories.replay(h)) for h in fault_histories.lanes(scenario, random.Random(seed), seed)[lane])


def measured(faults: Mapping[str, Sequence[Edit]], names: Iterable[tuple[str, str]], seed: int) -> Iterator[Reached]:
    """Plays a few histories of each (checker, name). The faults' places are touched from then on in this process."""
    counts = _Counts()
    touch(faults, counts)
    for checker, name in names:
        counts.times = Counter[str](), Counter[str]()
        began, tried, wrong = time.process_time(), 0, None
        for history, broken in itertools.islice(histories(checker, name, seed), _PLAYED[checker]):
            tried += 1
            wrong = wrong or ((history, broken) if broken else None)
        came, differs = map(dict, counts.times)
        yield Reached(checker, name, came, differs, time.process_time() - began, tried, wrong)


def ranked(fault: str, found: Sequence[Reached]) -> list[tuple[str, str]]:
    """All (checker, name): first those where the fault made a difference at once, then those that came to it, then the
    others; of each of the three those that did so most often in their time first, the checkers in turn."""
    groups: list[list[list[tuple[float, str, str]]]] = [[[] for _ in NAMES] for _ in range(3)]
    for reached in found:
        differs, came = reached.differs.get(fault, 0), reached.came.get(fault, 0)
        group = groups[0 if differs else 1 if came else 2][[*NAMES].index(reached.checker)]
        group.append((-(differs or came or 1) / (reached.seconds + 1e-3), reached.checker, reached.name))
    in_turn = (layer for group in groups for layer in itertools.zip_longest(*map(sorted, group)))
    return [(one[1], one[2]) for layer in in_turn for one in layer if one is not None]


def in_rank(names: Sequence[tuple[str, str]], seed: int) -> Iterator[tuple[str, str, str]]:
    """Checkers, histories and what is wrong after each, if anything, without end: one of each name in turn, and after
    each of these another one of the first few names."""
    runs = {name: _told(name, histories(*name, seed)) for name in names}
    first, all_of_them = _focused(names, runs), _round(runs)
    while runs:
        for name in (next(all_of_them), next(first)):
            if name in runs and (found := next(runs[name], None)) is not None:
                yield name[0], *found
            else:
                runs.pop(name, None)


def _told(name: tuple[str, str], run: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    try:
        yield from run
    except Exception as error:  # noqa: BLE001 - a checker that breaks has noticed
        yield "", f"the checker itself fails at {name}: {type(error).__name__}: {error}"


def _round(runs: Mapping[tuple[str, str], object]) -> Iterator[tuple[str, str]]:
    while runs:
        yield from [*runs]


def _focused(names: Sequence[tuple[str, str]], runs: Mapping[tuple[str, str], object]) -> Iterator[tuple[str, str]]:
    """The first name in each turn, the second one in each second turn, and so on, without those that have ended."""
    for turn in itertools.count(1):
        yield from [name for place, name in enumerate(names) if turn % (place + 1) == 0 and name in runs]
