"""Which histories of the checkers come to which places in the product.

A fault can only be seen by a history that comes to where it stands. So the places of all faults are touched, the
checkers play a few histories of each scenario, program, cast and kind of trouble, and it is noted what each comes to.
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
"""How many histories of each name are looked at: of kinds of faults about one of each scenario, of syncs that fail
three."""
_TELLING = 0.25
"""Histories that come to a place are worth to be played again first if they are no larger part than this of all."""
_FAVOURED = 2
"""How many histories names of the first group have for each one that all names have in turn."""
NAMES: dict[str, Sequence[str]] = {
    "explore": [*SCENARIOS, *PROGRAMS],
    "interleave": [*CASTS],
    "faults": fault_orders.LANES,
}
"""What each checker may choose from: scenarios and programs, casts, kinds of histories."""


class Played(msgspec.Struct, frozen=True):
    """One history, and the names of faults: those to whose places it came, and those that would have made a difference
    there at once (see `planting.Touches`)."""

    history: str
    came: set[str]
    differs: set[str]


class Reached(msgspec.Struct, frozen=True):
    """What a few histories of one name came to, in how much processor time. `wrong`: the first one that broke the sound
    product, and how; None if none did."""

    checker: str
    name: str
    played: list[Played]
    seconds: float
    wrong: tuple[str, str] | None = None

    def times(self, fault: str) -> tuple[int, int]:
        """How many histories the fault would have made a difference in, and how many came to it."""
        differs = sum(1 for one in self.played if fault in one.differs)
        return differs, sum(1 for one in self.played if fault in one.came)


class _Sets:
    """Notes what the product tells."""

    def __init__(self) -> None:
        self.came_to, self.differing = set[str](), set[str]()

    def came(self, name: str) -> None:
        self.came_to.add(name)

    def differs(self, name: str) -> None:
        self.differing.add(name)

    def taken(self) -> tuple[set[str], set[str]]:
        """What was noted since this was asked last."""
        found = self.came_to, self.differing
        self.came_to, self.differing = set[str](), set[str]()
        return found


def histories(checker: str, name: str, seed: int) -> Iterator[tuple[str, str]]:
    """A checker's histories of one name, and what is wrong after each, if anything."""
    if checker == "explore":
        return explore.recoveries([name], seed, explore.Findings())
    if checker == "interleave":
        return ((h, wrong) for h, _, wrong in interleave.plays([name], itertools.count(seed * 1_000_000)))
    return fault_orders.tries_of(name, seed)


def play_again(checker: str, history: str) -> str:
    """What is wrong after that history in this process, if anything."""
    if checker == "interleave":
        name, number, *trouble = history.split(":")
        return interleave.play(name, int(number), *trouble)[1]
    if checker == "explore":
        wrong = explore.replay(history)
        return "" if "has no operation" in wrong else wrong  # a crash that only another product comes to
    return fault_histories.replay(history)


def measured(faults: Mapping[str, Sequence[Edit]], names: Iterable[tuple[str, str]], seed: int) -> Iterator[Reached]:
    """Plays a few histories of each (checker, name). The faults' places are touched from then on in this process."""
    told = _Sets()
    touch(faults, told)
    for checker, name in names:
        began, played, wrong = time.process_time(), list[Played](), None
        many = _PLAYED.get(name) or _PLAYED[checker]
        for history, broken in itertools.islice(histories(checker, name, seed), many):
            played.append(Played(history, *told.taken()))
            wrong = wrong or ((history, broken) if broken else None)
        yield Reached(checker, name, played, time.process_time() - began, wrong)


def ranked(fault: str, found: Sequence[Reached]) -> list[list[tuple[str, str]]]:
    """All (checker, name): those where the fault made a difference at once, those that came to it, and the others; of
    each group those that did so most often in their time first, the checkers in turn. No group is empty."""
    groups: list[list[list[tuple[float, str, str]]]] = [[[] for _ in NAMES] for _ in range(3)]
    for reached in found:
        differs, came = reached.times(fault)
        group = groups[0 if differs else 1 if came else 2][[*NAMES].index(reached.checker)]
        group.append((-(differs or came or 1) / (reached.seconds + 1e-3), reached.checker, reached.name))
    in_turn = ([one for layer in itertools.zip_longest(*map(sorted, group)) for one in layer] for group in groups)
    return [names for group in in_turn if (names := [(one[1], one[2]) for one in group if one is not None])]


def telling(fault: str, found: Sequence[Reached]) -> list[tuple[str, str]]:
    """The (checker, history) in which the fault made a difference at once, or else those that came to it if they are
    few; of each name one in turn."""
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
    """Checkers, histories and what is wrong after each, if anything, without end: these once more, and, in between,
    others of these names, which are `ranked`."""
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
    """One history of each name in turn, and after each of these some more of the first group's."""
    runs = {name: _told(name, histories(*name, seed)) for group in names for name in group}
    first, all_of_them = _favouring(names[0], runs), _round(runs)
    while runs:
        for name in (*itertools.islice(first, _FAVOURED), next(all_of_them)):
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


def _favouring(names: Sequence[tuple[str, str]], runs: Mapping[tuple[str, str], object]) -> Iterator[tuple[str, str]]:
    """The first name in each turn, the second one in each second turn, and so on, until all have ended."""
    for turn in itertools.count(1):
        if not any(name in runs for name in names):
            return
        yield from [name for place, name in enumerate(names) if turn % (place + 1) == 0 and name in runs]
