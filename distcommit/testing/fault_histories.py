"""Histories with a fault: every operation of every scenario's run goes wrong, one at a time. Whatever the run says, an
undisturbed run afterwards must make all exact. The same for every operation of what people do by hand: afterwards the
next run and the command once more, in this order or the other, must make all right; what was answered is durable.

A history in its printed form is `name:KIND@N`, of a scenario or of a program by hand; N counts operations. KIND is

- an errno: the operation fails, before it takes effect; with `+` all fail from there on, with ` lost` it takes effect
  and only the answer is an error; with `/C` the power fails later on, at the C-th of the crashes that are tried;
- `unsynced`: the N-th sync fails, and what it was to write is given up, as kernels do: a later sync succeeds and does
  not write it; with `+` all syncs fail from there on. The power fails when all is over, or at one of a few places
  before, and keeps nothing unsynced;
- `full`, `readonly`: from there on the storage takes nothing more, or no change; it can be read. Operations that change
  nothing are not counted, and the error must say that nothing was written;
- `slow`, `ahead`, `back`: the operation outlasts the lock's lease, or the clock is set while it goes on, and another
  run comes that wants the lock, too (scenarios alone: people take no lock);
- a kind of damage: the N-th read of a file of the store gives damaged bytes; with `+` so do all from there on.

Faults one upon another are in turn with these: see `testing.fault_chains`.
"""

from __future__ import annotations

import errno
import itertools
import random
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

from distcommit.fs.posix import PosixCalls
from distcommit.model.errors import REFUSALS, DistcommitError, OutcomeUnknownError
from distcommit.model.log_records import DatasetState
from distcommit.model.watermark import Watermark
from distcommit.testing.damage import WHOLE
from distcommit.testing.explore import crashes_of, program_violation, recovery_violation
from distcommit.testing.fault_chains import NEXT, Chains, Subject
from distcommit.testing.faults import ERRORS, READS, SYNCS, Fault, FaultyCalls
from distcommit.testing.program_parts import SOURCE, Program
from distcommit.testing.programs_by_hand import BY_HAND
from distcommit.testing.scenarios import SCENARIOS, Scenario
from distcommit.testing.simulated_posix import Operation, SimulatedPosix
from distcommit.testing.stepped_lock import SteppedLock
from distcommit.testing.world import ROOTS, SimulatedClock, World

_LEASE_S = 30
_DAY_S = 86_400.0
_TIMES: dict[str, Callable[[SimulatedClock], None]] = {
    "slow": lambda clock: clock.sleep(_LEASE_S),
    "ahead": lambda clock: clock.jump(_DAY_S),
    "back": lambda clock: clock.jump(-_DAY_S),
}
_REFUSING = {"full": (errno.ENOSPC, {*READS, "unlink", "rmdir"}), "readonly": (errno.EROFS, READS)}
"""A storage that refuses all changes, or all that take space, from there on: the errno, and calls that it serves."""
_HISTORY = re.compile(
    r"(?P<name>[^:]+):(?P<kind>\w+)@(?P<number>\d+)(?P<ever>\+?)(?P<lost>(?: lost)?)(?:/(?P<crash>\d+))?"
)
PEOPLE = {program.name: program for program in BY_HAND}
_NAMES = [*SCENARIOS, *PEOPLE]
_UNSYNCED = "unsynced"
_HOWS = ("", "+", " lost")
_EVER, _NEVER = 1_000_000, 1_000_000_000
_POWER_LOSSES = 4
"""How many power losses are tried, of one history, before all is over."""
_CRASHES = 4
"""How many places a power loss after a fault is tried at, of one history."""


def faults(seconds: float, seed: int, names: Sequence[str] = ()) -> dict[str, object]:
    """Plays histories in an order that the seed chooses until time is up.

    Returns:
        plain values: `faults` (tried), `of` (how many there are), `violations`, `seconds`, `seed`.
    """
    began, tried = time.monotonic(), 0
    chosen = list(names) or _NAMES
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
    """Histories and what is wrong after each, if anything, one by one and without an end: names in turn, and of each
    name all kinds in turn."""
    rng = random.Random(seed)
    orders = [_in_turn(name, rng, seed) for name in names or _NAMES]
    rng.shuffle(orders)
    while True:
        for history in map(next, orders):
            yield history, replay(history)


def tries_of(lane: str, seed: int) -> Iterator[tuple[str, str]]:
    """As `tries`, histories of one kind, of all names in turn."""
    rng = random.Random(seed)
    orders = [lanes(name, rng, seed)[lane] for name in _NAMES]
    rng.shuffle(orders)
    while orders:
        for order in [*orders]:
            history = next(order, None)
            if history is None:
                orders.remove(order)
            else:
                yield history, replay(history)


def _in_turn(name: str, rng: random.Random, seed: int) -> Iterator[str]:
    """The histories of a name, without an end: of errors for once, errors for good, lost answers, chains and so on in
    turn, each first once at each kind of operation and place."""
    orders = [*lanes(name, rng, seed).values()]
    rng.shuffle(orders)
    return (history for layer in itertools.zip_longest(*orders) for history in layer if history is not None)


LANES = ("once", "ever", "lost", "dark", _UNSYNCED, *_REFUSING, "damage", "chain")
"""Kinds of histories that there are of every name; of scenarios there is "time", too."""


def lanes(name: str, rng: random.Random, seed: int) -> dict[str, Iterator[str]]:
    """The histories of a name by kind, each first once at each kind of operation and place; "chain" is without end."""
    codes = [errno.errorcode[code] for code in ERRORS]
    return {
        **{lane: _lane(name, codes, (how,), rng) for lane, how in zip(LANES, (*_HOWS, "/"), strict=False)},
        _UNSYNCED: _lane(name, (_UNSYNCED,), ("", "+"), rng),
        **{kind: _lane(name, (kind,), ("",), rng) for kind in _REFUSING},
        "damage": _lane(name, tuple(WHOLE), ("", "+"), rng),
        **({"time": _lane(name, tuple(_TIMES), ("",), rng)} if name in SCENARIOS else {}),
        "chain": CHAINS.of(name, random.Random(f"{name}{seed}")),
    }


def _lane(name: str, kinds: Sequence[str], hows: Sequence[str], rng: random.Random) -> Iterator[str]:
    """One history of each kind and place, then a second one of each, and so on."""
    places: dict[str, list[int]] = {}
    for number, site in enumerate(_sites(name, kinds[0])):
        places.setdefault(site, []).append(number)
    for numbers in places.values():
        rng.shuffle(numbers)
    order = [*itertools.product(kinds, hows, places)]
    rng.shuffle(order)
    for layer in range(max(map(len, places.values()), default=0)):
        for kind, how, site in order:
            if layer < len(places[site]):
                number = places[site][layer]
                yield f"{name}:{kind}@{number}{how}{number % _CRASHES if how == '/' else ''}"


def histories(names: Sequence[str]) -> Iterator[str]:
    """All histories of these scenarios and programs by hand."""
    for name in names:
        codes = [errno.errorcode[code] for code in ERRORS]
        for number, code in itertools.product(range(len(_sites(name, "EIO"))), codes):
            yield from (f"{name}:{code}@{number}{how}" for how in _HOWS)
            yield f"{name}:{code}@{number}/{number % _CRASHES}"
        for kind in _REFUSING:
            yield from (f"{name}:{kind}@{number}" for number in range(len(_sites(name, kind))))
        if name in SCENARIOS:
            for number, kind in itertools.product(range(len(_sites(name, "slow"))), _TIMES):
                yield f"{name}:{kind}@{number}"
        for number in range(len(_sites(name, _UNSYNCED))):
            yield from (f"{name}:{_UNSYNCED}@{number}{how}" for how in ("", "+"))
        for number, kind in itertools.product(range(len(_sites(name, "cut"))), WHOLE):
            yield from (f"{name}:{kind}@{number}{how}" for how in ("", "+"))


def replay(history: str) -> str:
    """Plays one history and returns what was violated, if anything."""
    if NEXT in history:
        return CHAINS.play(history)
    found = _HISTORY.fullmatch(history)
    if found is None or found["name"] not in _NAMES or (found["kind"] in _TIMES and found["name"] in PEOPLE):
        return f"no history: {history}"
    name, number, times = found["name"], int(found["number"]), _EVER if found["ever"] else 1
    machine = _machine(name)
    fault, run = _disturbed(name, machine, found["kind"], number, times, lost=bool(found["lost"]))
    try:
        if found["kind"] == _UNSYNCED:
            return _violation_without_power(name, machine, run, fault, history)
        if found["crash"] is not None:
            return _violation_after(name, _crashed(machine, run, history, int(found["crash"])))
        played = run()
        if wrong := _untold_refusal(found["kind"], found["lost"], played.error):
            return wrong
    except Exception as error:  # noqa: BLE001 - what is not typed is a finding
        return f"an error that is not typed: {''.join(traceback.format_exception(error))}"
    return (lost_answer(machine) if name in PEOPLE and played.answered else "") or _violation_after(name, machine)


def _violation_without_power(
    name: str, machine: SimulatedPosix, run: Callable[[], _Played], fault: Fault, history: str
) -> str:
    """What is wrong if the power fails once all is over, or somewhere after the fault; nothing unsynced is left."""
    rng = random.Random(history)
    places: list[SimulatedPosix] = []

    def gate(operation: Operation) -> None:
        if len(fault.sites) > fault.first:
            places.append(machine.after_kill())

    machine.gate = gate
    answered = run().answered
    machine.gate = None
    known = _watermarks(name, machine) if answered else {}
    after = _powerless(machine)
    try:
        now = _watermarks(name, after)
    except DistcommitError as error:
        return f"a power loss leaves what can't be read: {error}"
    if any(urn not in now or not now[urn].covers(watermark) for urn, watermark in known.items()):
        return f"a power loss takes back what was answered: {known} is {now}"
    before = rng.sample(places, min(len(places), _POWER_LOSSES))
    return next(filter(None, (_violation_after(name, m) for m in (after, *map(_powerless, before)))), "")


def _powerless(machine: SimulatedPosix) -> SimulatedPosix:
    return next(machine.after_power_loss(random.Random(0), 0, 0))


def _violation_after(name: str, machine: SimulatedPosix) -> str:
    """What is wrong once undisturbed runs came, or the command was given again."""
    if name in PEOPLE:
        return _violation_by_hand(PEOPLE[name], machine)
    return _violation_of_runs(SCENARIOS[name], machine)


def _violation_of_runs(scenario: Scenario, machine: SimulatedPosix) -> str:
    """What is wrong after some runs: what failed to be replayed is tried again by the next one."""
    wrong = ""
    for _ in range(scenario.world.max_attempts):
        wrong = recovery_violation(scenario, machine)
        if not wrong:
            return ""
    return wrong


def _untold_refusal(kind: str, lost: str, error: Exception | None) -> str:
    """What is wrong with the error of a storage that refused whole operations: surely none of them had an effect."""
    refused = kind in _REFUSING or (not lost and getattr(errno, kind, 0) in REFUSALS)
    unknown = isinstance(error, OutcomeUnknownError)
    return f"a refusal is told as an unknown outcome: {error}" if refused and unknown else ""


def _violation_by_hand(program: Program, machine: SimulatedPosix) -> str:
    """What is wrong once the command was given again and a run came, and once a run came first."""
    other = machine.after_kill()
    wrong = program_violation(program, machine)
    if not wrong:
        with suppress(DistcommitError):
            World().run(other, SOURCE)
        wrong = program_violation(program, other)
        wrong = wrong and f"with a run before the command was given again: {wrong}"
    return wrong


def _watermarks(name: str, machine: SimulatedPosix) -> dict[str, Watermark]:
    return (SCENARIOS[name].world if name in SCENARIOS else World()).watermarks(machine)


def lost_answer(machine: SimulatedPosix) -> str:
    """Which state a power loss takes back of those that the command was answered on."""
    now = _states(machine)
    for survivor in machine.after_power_loss(random.Random(0), 5, 6):
        then = _states(survivor)
        if then != now:
            return f"a power loss takes back what was answered: {now} is {then}"
    return ""


def _states(machine: SimulatedPosix) -> dict[str, DatasetState]:
    store = World().store(machine)
    return store.bucket_log(0).refresh().datasets


def _machine(name: str) -> SimulatedPosix:
    return _found(name).after_kill()


@cache
def _found(name: str) -> SimulatedPosix:
    return SCENARIOS[name].machine() if name in SCENARIOS else PEOPLE[name].find()


def _subject(name: str) -> Subject:
    """A scenario or program as chains of faults strike it."""
    if name in SCENARIOS:
        scenario = SCENARIOS[name]
        return Subject(
            partial(_machine, name),
            lambda calls: scenario.run(calls, scenario.disturbed),
            {"": lambda calls: scenario.run(calls, scenario.after)},
            partial(_violation_of_runs, scenario),
        )
    program = PEOPLE[name]
    by_hand = cast(Callable[[PosixCalls], None], program.act)
    return Subject(
        partial(_machine, name),
        by_hand,
        {"": by_hand, "run ": lambda calls: World().run(calls, SOURCE)},
        partial(_violation_by_hand, program),
    )


CHAINS = Chains({name: _subject(name) for name in _NAMES})


@dataclass(frozen=True, slots=True)
class _Played:
    """Whether there was an answer, or else the error."""

    answered: bool
    error: Exception | None = None


def _disturbed(
    name: str, machine: SimulatedPosix, kind: str, number: int, times: int, *, lost: bool = False
) -> tuple[Fault, Callable[[], _Played]]:
    """The fault, and the scenario's run, or what the person does, with it, which tells whether there was an answer; it
    may fail instead, with a typed error."""
    clock = SimulatedClock()

    def act(calls: PosixCalls) -> None:
        if name in PEOPLE:
            PEOPLE[name].act(cast(SimulatedPosix, calls))
        else:
            SCENARIOS[name].run(calls, SCENARIOS[name].disturbed)

    def under_lock(calls: PosixCalls, run: str) -> None:
        scenario = SCENARIOS[name]
        fs = scenario.world.store(calls).fs
        with SteppedLock(fs, ROOTS.store, run, _LEASE_S, clock):
            scenario.run(calls, scenario.disturbed, clock)

    def meanwhile() -> None:
        _TIMES[kind](clock)
        with suppress(DistcommitError, OSError):  # it may fail as any run
            under_lock(machine, "second")

    if kind in _TIMES:
        fault = Fault(0, number, meanwhile=meanwhile)
    elif kind == _UNSYNCED:
        fault = Fault(errno.EIO, number, times, besides=machine.give_up, concerns=_syncs)
    elif kind in _REFUSING:
        code, spared = _REFUSING[kind]
        fault = Fault(code, number, _EVER, concerns=lambda name, arguments: name not in spared)
    elif kind in WHOLE:
        fault = Fault(0, number, times, damage=WHOLE[kind], concerns=_reads_store)
    else:
        fault = Fault(getattr(errno, kind), number, times, lost)
    calls = cast(PosixCalls, FaultyCalls(machine, fault))

    def run() -> _Played:
        try:
            if kind in _TIMES:
                under_lock(calls, "first")
            else:
                act(calls)
        except (DistcommitError, OSError) as error:  # a run may fail; it may not do harm
            return _Played(False, error)
        return _Played(True)

    return fault, run


def _syncs(name: str, arguments: tuple[Any, ...]) -> bool:
    return name in SYNCS


def _reads_store(name: str, arguments: tuple[Any, ...]) -> bool:
    return name == "read_file" and str(arguments[0]).startswith(f"{ROOTS.store}/")


def _sites(name: str, kind: str) -> list[str]:
    """The kinds of operations and places, where nothing is disturbed, that the fault may strike, one by one."""
    if kind in (_UNSYNCED, *_REFUSING):
        return _traced(name, kind)
    return _traced(name, "cut" if kind in WHOLE else "slow" if kind in _TIMES else "EIO")


@cache
def _traced(name: str, kind: str) -> list[str]:
    fault, run = _disturbed(name, _machine(name), kind, _NEVER, 1)
    run()
    return fault.sites


def _crashed(machine: SimulatedPosix, run: Callable[[], _Played], history: str, number: int) -> SimulatedPosix:
    """What a power loss leaves at one of a few places in that run."""
    rng = random.Random(history)
    crashes = [
        survivor for crash, survivor, _ in crashes_of(machine, lambda calls: run(), rng, _few(rng)) if crash.state
    ]
    return crashes[len(crashes) * number // _CRASHES] if crashes else machine.after_kill()


def _few(rng: random.Random) -> Callable[[int], bool]:
    return lambda operation: rng.randrange(20) == 0
