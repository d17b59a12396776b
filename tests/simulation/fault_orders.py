"""The order in which histories with a fault are played: see `fault_histories`."""

from __future__ import annotations

import errno
import itertools
import random
import time
from collections.abc import Iterator, Sequence

from distcommit.testing.fakes.faulty_calls import ERRORS
from tests.simulation.damage import WHOLE
from tests.simulation.fault_histories import (
    CHAINS,
    CRASHES,
    NAMES,
    REFUSING,
    TIMES,
    UNSYNCED,
    replay,
    sites,
)
from tests.simulation.scenarios import SCENARIOS

_HOWS = {"once": "", "ever": "+", "lost": " lost"}
LANES = (*_HOWS, "dark", UNSYNCED, *REFUSING, "damage", "chain")
"""Kinds of histories that every name has; scenarios have "time", too."""


def faults(seconds: float, seed: int, names: Sequence[str] = ()) -> dict[str, object]:
    """Play histories in an order that the seed chooses until time is up.

    Returns:
        plain values: `faults` (tried), `of` (how many there are), `violations`, `seconds`, `seed`.
    """
    began, tried = time.monotonic(), 0
    chosen = list(names) or NAMES
    violations: list[dict[str, str]] = []
    for history, wrong in tries(chosen, seed):
        tried += 1
        if wrong:
            violations.append({"history": history, "violation": wrong})
        if time.monotonic() - began > seconds:
            break
    return {
        "faults": tried,
        "of": sum(1 for _ in histories(chosen)),
        "violations": violations,
        "seconds": round(time.monotonic() - began, 1),
        "seed": seed,
    }


def tries(names: Sequence[str], seed: int) -> Iterator[tuple[str, str]]:
    """Yield histories and their violations endlessly: names in turn, and for each name all kinds in turn."""
    rng = random.Random(seed)
    orders = [_in_turn(name, rng, seed) for name in names or NAMES]
    rng.shuffle(orders)
    while True:
        for history in map(next, orders):
            yield history, replay(history)


def tries_of(lane: str, seed: int) -> Iterator[tuple[str, str]]:
    """Yield histories of one kind as `tries` does, for all names in turn."""
    rng = random.Random(seed)
    orders = [lanes(name, rng, seed)[lane] for name in NAMES]
    rng.shuffle(orders)
    while orders:
        for order in [*orders]:
            history = next(order, None)
            if history is None:
                orders.remove(order)
            else:
                yield history, replay(history)


def _in_turn(name: str, rng: random.Random, seed: int) -> Iterator[str]:
    """Yield the histories of a name endlessly.

    Single errors, permanent errors, lost answers, chains and so on come in turn, each first once at each kind of
    operation and place.
    """
    orders = [*lanes(name, rng, seed).values()]
    rng.shuffle(orders)
    return (history for layer in itertools.zip_longest(*orders) for history in layer if history is not None)


def lanes(name: str, rng: random.Random, seed: int) -> dict[str, Iterator[str]]:
    """Return the histories of a name by kind, each first once at each kind of operation and place; "chain" is
    endless."""
    codes = [errno.errorcode[code] for code in ERRORS]
    return {
        **{lane: _lane(name, codes, (how,), rng) for lane, how in (*_HOWS.items(), ("dark", "/"))},
        UNSYNCED: _lane(name, (UNSYNCED,), ("", "+"), rng),
        **{kind: _lane(name, (kind,), ("",), rng) for kind in REFUSING},
        "damage": _lane(name, tuple(WHOLE), ("", "+"), rng),
        **({"time": _lane(name, tuple(TIMES), ("",), rng)} if name in SCENARIOS else {}),
        "chain": CHAINS.of(name, random.Random(f"{name}{seed}")),
    }


def _lane(name: str, kinds: Sequence[str], hows: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Yield one history for each kind of operation and place, then a second one for each, and so on."""
    places: dict[str, list[int]] = {}
    for number, site in enumerate(sites(name, kinds[0])):
        places.setdefault(site, []).append(number)
    for numbers in places.values():
        rng.shuffle(numbers)
    order = [*itertools.product(kinds, hows, places)]
    rng.shuffle(order)
    for layer in range(max(map(len, places.values()), default=0)):
        for kind, how, site in order:
            if layer < len(places[site]):
                number = places[site][layer]
                yield f"{name}:{kind}@{number}{how}{number % CRASHES if how == '/' else ''}"


def histories(names: Sequence[str]) -> Iterator[str]:
    """Return all histories of these scenarios and programs."""
    for name in names:
        codes = [errno.errorcode[code] for code in ERRORS]
        for number, code in itertools.product(range(len(sites(name, "EIO"))), codes):
            yield from (f"{name}:{code}@{number}{how}" for how in _HOWS.values())
            yield f"{name}:{code}@{number}/{number % CRASHES}"
        for kind in REFUSING:
            yield from (f"{name}:{kind}@{number}" for number in range(len(sites(name, kind))))
        if name in SCENARIOS:
            for number, kind in itertools.product(range(len(sites(name, "slow"))), TIMES):
                yield f"{name}:{kind}@{number}"
        for number in range(len(sites(name, UNSYNCED))):
            yield from (f"{name}:{UNSYNCED}@{number}{how}" for how in ("", "+"))
        for number, kind in itertools.product(range(len(sites(name, "cut"))), WHOLE):
            yield from (f"{name}:{kind}@{number}{how}" for how in ("", "+"))
