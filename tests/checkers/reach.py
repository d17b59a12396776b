"""The histories of the checkers that reach given places in the product.

Only a history that reaches a fault's place can see it. So the places of all faults are instrumented, and the checkers
play a few histories of each scenario, program, cast and kind of trouble. The reached places of each are recorded.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tests.checkers.planting import Edit, touch
from tests.simulation import explore, fault_histories, fault_orders, interleave
from tests.simulation.casts import CASTS
from tests.simulation.programs import PROGRAMS
from tests.simulation.scenarios import SCENARIOS

_PLAYED = {"explore": 4, "interleave": 16, "faults": 33, "unsynced": 99}
"""Histories of each name to measure: of kinds of faults about one of each scenario, of failing syncs three."""
_TELLING = 0.25
"""Histories that reach a place are played again first only if they are at most this share of all."""
_FAVOURED = 2
"""Histories of names in the first group for each one that all names have in turn."""
NAMES: dict[str, Sequence[str]] = {
    "explore": [*SCENARIOS, *PROGRAMS],
    "interleave": [*CASTS],
    "faults": fault_orders.LANES,
}
"""Names that each checker may choose: scenarios and programs, casts, kinds of histories."""


class Played(msgspec.Struct, frozen=True):
    """One history, and two sets of faults: those whose places it reached, and those with an immediate difference
    (see `planting.Touches`)."""

    history: str
    came: set[str]
    differs: set[str]


class Reached(msgspec.Struct, frozen=True):
    """Places that a few histories of one name reached, and their processor time.

    `wrong`: the first one that broke the sound product, and its violation; None if none did.
    """

    checker: str
    name: str
    played: list[Played]
    seconds: float
    wrong: tuple[str, str] | None = None

    def times(self, fault: str) -> tuple[int, int]:
        """Return in how many histories the fault would have made a difference, and how many reached it."""
        differs = sum(1 for one in self.played if fault in one.differs)
        return differs, sum(1 for one in self.played if fault in one.came)


class _Sets:
    """Records the reports of the product."""

    def __init__(self) -> None:
        self.came_to, self.differing = set[str](), set[str]()

    def came(self, name: str) -> None:
        self.came_to.add(name)

    def differs(self, name: str) -> None:
        self.differing.add(name)

    def taken(self) -> tuple[set[str], set[str]]:
        """Return the records since the last call."""
        records = self.came_to, self.differing
        self.came_to, self.differing = set[str](), set[str]()
        return records


def histories(checker: str, name: str, seed: int) -> Iterator[tuple[str, str]]:
    """Yield a checker's histories of one name, and their violations."""
    if checker == "explore":
        return explore.recoveries([name], seed, explore.Findings())
    if checker == "interleave":
        return ((h, wrong) for h, _, wrong in interleave.plays([name], itertools.count(seed * 1_000_000)))
    return fault_orders.tries_of(name, seed)


def play_again(checker: str, history: str) -> str:
    """Return the violation of that history in this process, if any."""
    if checker == "interleave":
        name, number, *trouble = history.split(":")
        return interleave.play(name, int(number), *trouble)[1]
    if checker == "explore":
        wrong = explore.replay(history)
        return "" if "has no operation" in wrong else wrong  # a crash that only another product reaches
    return fault_histories.replay(history)


def measured(faults: Mapping[str, Sequence[Edit]], names: Iterable[tuple[str, str]], seed: int) -> Iterator[Reached]:
    """Play a few histories of each (checker, name). The faults' places stay instrumented in this process."""
    records = _Sets()
    touch(faults, records)
    for checker, name in names:
        began, played, wrong = time.process_time(), list[Played](), None
        many = _PLAYED.get(name) or _PLAYED[checker]
        for history, broken in itertools.islice(histories(checker, name, seed), many):
            played.append(Played(history, *records.taken()))
            wrong = wrong or ((history, broken) if broken else None)
        yield Reached(checker, name, played, time.process_time() - began, wrong)


def ranked(fault: str, found: Sequence[Reached]) -> list[list[tuple[str, str]]]:
    """Return all (checker, name) in three groups: with an immediate difference, reaching the fault, and the others.

    In each group those come first that did so most often in their time, with the checkers in turn. No group is empty.
    """
    groups: list[list[list[tuple[float, str, str]]]] = [[[] for _ in NAMES] for _ in range(3)]
    for reached in found:
        differs, came = reached.times(fault)
        group = groups[0 if differs else 1 if came else 2][[*NAMES].index(reached.checker)]
        group.append((-(differs or came or 1) / (reached.seconds + 1e-3), reached.checker, reached.name))
    in_turn = ([one for layer in itertools.zip_longest(*map(sorted, group)) for one in layer] for group in groups)
    return [names for group in in_turn if (names := [(one[1], one[2]) for one in group if one is not None])]


def telling(fault: str, found: Sequence[Reached]) -> list[tuple[str, str]]:
    """Return the (checker, history) with an immediate difference, or otherwise those that reached the fault if they
    are few; of each name one in turn."""
    places = {name: place for place, name in enumerate(itertools.chain(*ranked(fault, found)))}
    in_order = sorted(found, key=lambda reached: places[reached.checker, reached.name])
    differ, came = ([_those(reached, fault, which) for reached in in_order] for which in ("differs", "came"))
    tried = sum(len(reached.played) for reached in found)
    chosen = differ if any(differ) else came if sum(map(len, came)) <= _TELLING * tried else []
    return [one for layer in itertools.zip_longest(*chosen) for one in layer if one is not None]


def _those(reached: Reached, fault: str, which: str) -> list[tuple[str, str]]:
    return [(reached.checker, one.history) for one in reached.played if fault in getattr(one, which)]


def aimed(
    again: Sequence[tuple[str, str]], names: Sequence[Sequence[tuple[str, str]]], seed: int
) -> Iterator[tuple[str, str, str]]:
    """Yield checkers, histories and violations endlessly: these histories once more and, in between, others of these
    `ranked` names."""
    others = _in_rank(names, seed)
    for checker, history in again:
        try:
            wrong = play_again(checker, history)
        except Exception as error:  # noqa: BLE001 - a checker that breaks has noticed
            wrong = f"the checker itself fails: {type(error).__name__}: {error}"
        yield checker, history, wrong
        yield from itertools.islice(others, 1)
    yield from others


def _in_rank(names: Sequence[Sequence[tuple[str, str]]], seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield one history of each name in turn, and after each of these some more of the first group's."""
    runs = {name: _recorded(name, histories(*name, seed)) for group in names for name in group}
    first, all_of_them = _favouring(names[0], runs), _round(runs)
    while runs:
        for name in (*itertools.islice(first, _FAVOURED), next(all_of_them)):
            if name in runs and (history := next(runs[name], None)) is not None:
                yield name[0], *history
            else:
                runs.pop(name, None)


def _recorded(name: tuple[str, str], run: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    try:
        yield from run
    except Exception as error:  # noqa: BLE001 - a checker that breaks has noticed
        yield "", f"the checker itself fails at {name}: {type(error).__name__}: {error}"


def _round(runs: Mapping[tuple[str, str], object]) -> Iterator[tuple[str, str]]:
    while runs:
        yield from [*runs]


def _favouring(names: Sequence[tuple[str, str]], runs: Mapping[tuple[str, str], object]) -> Iterator[tuple[str, str]]:
    """Yield the first name in each turn, the second one in each second turn, and so on, until all have ended."""
    for turn in itertools.count(1):
        if not any(name in runs for name in names):
            return
        yield from [name for place, name in enumerate(names) if turn % (place + 1) == 0 and name in runs]
