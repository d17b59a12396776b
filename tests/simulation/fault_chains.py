"""Chains of faults: a kill or power loss, then an I/O error in the next act, then a power loss during or after it.

At the end an undisturbed run must make everything exact.

A chain in its printed form is `name:STAGE > STAGE > ...`: the first stage strikes the first act, the second stage the
second act, and so on. A stage is

- `kill@N`: the process dies before its N-th mutating operation; `power@N.S`: the power fails there, and leaves the S-th
  of the possible states;
- `ERRNO@N`: the N-th operation fails; with `+` all from there on, with ` lost` only its answer is an error; with `/C`
  the power fails after that, at the C-th of four places between the error and the end.
"""

from __future__ import annotations

import errno
import random
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from typing import cast

from distcommit.core.errors import DistcommitError
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.testing.fakes.faulty_calls import ERRORS, Fault, FaultyCalls, Operation
from tests.simulation.simulated_posix import SimulatedPosix

NEXT = " > "
_STAGE = re.compile(
    r"(?P<who>(?:\w+ )?)(?P<kind>[a-zA-Z]+)@(?P<number>\d+)(?:\.(?P<state>\d+))?(?P<ever>\+?)(?P<lost>(?: lost)?)"
    r"(?:/(?P<place>\d+))?"
)
_EVER, _NEVER = 1_000_000, 1_000_000_000
_PLACES, _STATES, _CHOICES, _SAMPLES = 4, 6, 5, 6

Act = Callable[[PosixCalls], object]


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of fault chains.

    Attributes:
        find: creates the initial machine.
        first: the first act.
        again: later acts, by the word that a stage begins with; "" for none.
        violation: returns the violation after an undisturbed run, if any.
    """

    find: Callable[[], SimulatedPosix]
    first: Act
    again: Mapping[str, Act]
    violation: Callable[[SimulatedPosix], str]


class NoSuchStageError(ValueError):
    """The text is not a stage, or there is no such operation."""


class Chains:
    """Fault chains on some subjects, by name."""

    def __init__(self, subjects: Mapping[str, Subject]) -> None:
        self._subjects = subjects
        self._after = lru_cache(128)(self._struck)  # chains with a common beginning share its result

    def play(self, history: str) -> str:
        """Play a chain, and return the violation, if any."""
        name, _, text = history.partition(":")
        if name not in self._subjects:
            return f"no history: {history}"
        try:
            machine = self._after(name, tuple(text.split(NEXT)))
        except NoSuchStageError as error:
            return f"no history: {history} ({error})"
        except Exception as error:  # noqa: BLE001 - what is not typed is a finding
            return f"an error that is not typed: {''.join(traceback.format_exception(error))}"
        return self._subjects[name].violation(machine.after_kill())

    def of(self, name: str, rng: random.Random) -> Iterator[str]:
        """Yield chains on a subject, endlessly; several for each first stage, as they share its result."""
        again = self._subjects[name].again
        while True:
            operations = self._count(name, (), "")[1]
            number = rng.randrange(operations + 1)
            first = f"kill@{number}" if rng.random() < 0.7 else f"power@{number}.{rng.randrange(_STATES)}"
            for user in [*again, *again]:
                calls, operations = self._count(name, (first,), user)
                yield f"{name}:{NEXT.join([first, *self._later(user, calls, operations, rng)])}"

    def _later(self, who: str, calls: int, operations: int, rng: random.Random) -> Iterator[str]:
        """Yield an error in the next act, and a power loss in it; or in the act after it, alone or after another
        error."""
        how = rng.choice(("", "+", " lost"))
        struck = f"{who}{errno.errorcode[rng.choice(ERRORS)]}@{rng.randrange(calls)}{how}"
        if rng.random() < 0.5:
            yield f"{struck}/{rng.randrange(_PLACES)}"
            return
        yield struck
        if rng.random() < 0.5:
            yield f"{who}power@{rng.randrange(operations + 1)}.{rng.randrange(_STATES)}"
        else:
            yield f"{who}EIO@{rng.randrange(calls)}/{rng.randrange(_PLACES)}"

    def _count(self, name: str, stages: tuple[str, ...], who: str) -> tuple[int, int]:
        """Return how many calls, and how many mutating ones, the next act after these stages has undisturbed."""
        machine, operations = self._at(name, stages).after_kill(), list[Operation]()
        fault = Fault(errno.EIO, _NEVER)
        machine.gate = operations.append
        _failed(machine, self._act(name, stages, who), fault)
        return max(1, fault.counted_calls), len(operations)

    def _at(self, name: str, stages: tuple[str, ...]) -> SimulatedPosix:
        return self._after(name, stages) if stages else self._subjects[name].find()

    def _act(self, name: str, before: Sequence[str], who: str) -> Act:
        subject = self._subjects[name]
        acts = subject.again if before else {"": subject.first}
        if who not in acts:
            raise NoSuchStageError(f"no act is named {who!r}")
        return acts[who]

    def _struck(self, name: str, stages: tuple[str, ...]) -> SimulatedPosix:
        """Return the machine after these stages."""
        *before, text = stages
        stage = _STAGE.fullmatch(text)
        if stage is None:
            raise NoSuchStageError(text)
        machine = self._at(name, tuple(before)).after_kill()
        act = self._act(name, before, stage["who"])
        rng = random.Random(f"{name}{stages}")
        if stage["kind"] in ("kill", "power"):
            return _dead(machine, act, int(stage["number"]), stage["state"], rng)
        code = getattr(errno, stage["kind"], None)
        if code is None:
            raise NoSuchStageError(text)
        fault = Fault(code, int(stage["number"]), _EVER if stage["ever"] else 1, bool(stage["lost"]))
        if stage["place"] is None:
            return _failed(machine, act, fault)
        return _failed_and_dark(machine, act, fault, int(stage["place"]), rng)


def _dead(machine: SimulatedPosix, act: Act, number: int, state: str | None, rng: random.Random) -> SimulatedPosix:
    """Return the machine after a kill or a power loss before that operation; the one after the last is the end."""
    machines: list[SimulatedPosix] = []
    places = count()

    def gate(operation: Operation) -> None:
        if next(places) == number:
            machines.append(machine.after_kill())

    machine.gate = gate
    with suppress(DistcommitError, OSError):
        act(cast(PosixCalls, machine))
    machine.gate = None
    dead = machines[0] if machines else machine.after_kill()
    return dead if state is None else _power_loss(dead, int(state), rng)


def _power_loss(machine: SimulatedPosix, state: int, rng: random.Random) -> SimulatedPosix:
    states = list(islice(machine.after_power_loss(rng, _CHOICES, _SAMPLES), state + 1))
    return states[-1]


def _failed(machine: SimulatedPosix, act: Act, fault: Fault) -> SimulatedPosix:
    with suppress(DistcommitError, OSError):  # it may fail; it may not do harm
        act(cast(PosixCalls, FaultyCalls(machine, fault)))
    return machine


def _failed_and_dark(machine: SimulatedPosix, act: Act, fault: Fault, place: int, rng: random.Random) -> SimulatedPosix:
    """Return the machine after a power loss at one of a few places after the error."""
    machines: list[SimulatedPosix] = []

    def gate(operation: Operation) -> None:
        if fault.counted_calls > fault.first:
            machines.append(machine.after_kill())

    machine.gate = gate
    _failed(machine, act, fault)
    machine.gate = None
    machines.append(machine.after_kill())
    last = len(machines) - 1
    return _power_loss(machines[last * min(place, _PLACES - 1) // (_PLACES - 1)], rng.randrange(_STATES), rng)
