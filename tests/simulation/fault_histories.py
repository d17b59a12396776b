"""Histories with a fault: every operation of every scenario's run fails, one at a time.

Whatever the outcome of that run, an undisturbed run afterwards must make everything exact. Every operation of operator
commands fails too. Afterwards the next run and the repeated command, in either order, must repair everything, and
confirmed effects are durable.

A history in its printed form is `name:KIND@N`, of a scenario or of an operator's program; N counts operations. KIND is

- an errno: the operation fails, before it takes effect; with `+` all fail from there on, with ` lost` it takes effect
  and only the answer is an error; with `/C` the power fails later, at the C-th of the tried crashes;
- `unsynced`: the N-th sync fails, and its bytes are dropped, as kernels do: a later sync succeeds without writing them;
  with `+` all syncs fail from there on. The power fails at the end, or at one of a few places before, and keeps nothing
  unsynced;
- `full`, `readonly`: from there on the storage accepts no more bytes, or no change; it can be read. Operations that
  change nothing are not counted, and the error must state that nothing was written;
- `slow`, `ahead`, `back`: the operation outlasts the lock's lease, or the clock is set meanwhile, and another run
  competes for the lock (scenarios alone: operator commands take no lock);
- a kind of damage: the N-th read of a file of the store returns damaged bytes; with `+` so do all from there on.

Chains of faults take turns with these (see `fault_chains`), in the order of `fault_orders`.
"""

from __future__ import annotations

import errno
import random
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

from distcommit.core.error_handling.storage_errors import REFUSALS
from distcommit.core.errors import DistcommitError, OutcomeUnknownError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.testing.fakes.faulty_calls import READS, SYNCS, Fault, FaultyCalls, Operation
from tests.simulation.damage import WHOLE
from tests.simulation.explore import crashes_of, program_violation, recovery_violation
from tests.simulation.fault_chains import NEXT, Chains, Subject
from tests.simulation.programs.compact import COMPACT
from tests.simulation.programs.operator_actions import OPERATOR_ACTIONS
from tests.simulation.programs.parts import SOURCE, Program
from tests.simulation.scenarios import SCENARIOS, Scenario
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.stepped_lock import SteppedLock
from tests.simulation.world import ROOTS, SimulatedClock, World

_LEASE_S = 30
_DAY_S = 86_400.0
TIMES: dict[str, Callable[[SimulatedClock], None]] = {
    "slow": lambda clock: clock.sleep(_LEASE_S),
    "ahead": lambda clock: clock.jump(_DAY_S),
    "back": lambda clock: clock.jump(-_DAY_S),
}
REFUSING = {"full": (errno.ENOSPC, {*READS, "unlink", "rmdir"}), "readonly": (errno.EROFS, READS)}
"""A storage that refuses all changes, or all that take space, from there on: the errno, and the calls that it
serves."""
_HISTORY = re.compile(
    r"(?P<name>[^:]+):(?P<kind>\w+)@(?P<number>\d+)(?P<ever>\+?)(?P<lost>(?: lost)?)(?:/(?P<crash>\d+))?"
)
OPERATORS = {program.name: program for program in (*OPERATOR_ACTIONS, COMPACT[0])}
NAMES = [*SCENARIOS, *OPERATORS]
"""Subjects of histories."""
UNSYNCED = "unsynced"
_EVER, _NEVER = 1_000_000, 1_000_000_000
_POWER_LOSSES = 4
"""Power losses that are tried before the end of one history."""
CRASHES = 4
"""Places of a power loss after a fault that are tried in one history."""


def replay(history: str) -> str:
    """Play one history, and return the violation, if any."""
    if NEXT in history:
        return CHAINS.play(history)
    match = _HISTORY.fullmatch(history)
    if match is None or match["name"] not in NAMES or (match["kind"] in TIMES and match["name"] in OPERATORS):
        return f"no history: {history}"
    name, number, times = match["name"], int(match["number"]), _EVER if match["ever"] else 1
    machine = _machine(name)
    fault, run = _disturbed(name, machine, match["kind"], number, times, lost=bool(match["lost"]))
    try:
        if match["kind"] == UNSYNCED:
            return _violation_without_power(name, machine, run, fault, history)
        if match["crash"] is not None:
            return _violation_after(name, _crashed(machine, run, history, int(match["crash"])))
        played = run()
        if wrong := _unreported_refusal(match["kind"], match["lost"], played.error):
            return wrong
    except Exception as error:  # noqa: BLE001 - what is not typed is a finding
        return f"an error that is not typed: {''.join(traceback.format_exception(error))}"
    return (lost_answer(machine) if name in OPERATORS and played.answered else "") or _violation_after(name, machine)


def _violation_without_power(
    name: str, machine: SimulatedPosix, run: Callable[[], _Played], fault: Fault, history: str
) -> str:
    """Return a violation if the power fails at the end, or somewhere after the fault, and nothing unsynced is left."""
    rng = random.Random(history)
    places: list[SimulatedPosix] = []

    def gate(operation: Operation) -> None:
        if len(fault.sites) > fault.first:
            places.append(machine.after_kill())

    machine.gate = gate
    answered = run().answered
    machine.gate = None
    watermarks = _watermarks(name, machine) if answered else {}
    after = _powerless(machine)
    try:
        now = _watermarks(name, after)
    except DistcommitError as error:
        return f"a power loss leaves unreadable state: {error}"
    if any(urn not in now or not now[urn].covers(watermark) for urn, watermark in watermarks.items()):
        return f"a power loss reverts a confirmed effect: {watermarks} is {now}"
    before = rng.sample(places, min(len(places), _POWER_LOSSES))
    return next(filter(None, (_violation_after(name, m) for m in (after, *map(_powerless, before)))), "")


def _powerless(machine: SimulatedPosix) -> SimulatedPosix:
    return next(machine.after_power_loss(random.Random(0), 0, 0))


def _violation_after(name: str, machine: SimulatedPosix) -> str:
    """Return a violation after undisturbed runs, or after the repeated command."""
    if name in OPERATORS:
        return _violation_by_hand(OPERATORS[name], machine)
    return _violation_of_runs(SCENARIOS[name], machine)


def _violation_of_runs(scenario: Scenario, machine: SimulatedPosix) -> str:
    """Return a violation after some runs: the next run retries a failed replay."""
    wrong = ""
    for _ in range(scenario.world.max_attempts):
        wrong = recovery_violation(scenario, machine)
        if not wrong:
            return ""
    return wrong


def _unreported_refusal(kind: str, lost: str, error: Exception | None) -> str:
    """Return an error of a full or read-only storage that does not report that nothing was written."""
    refused = kind in REFUSING or (not lost and getattr(errno, kind, 0) in REFUSALS)
    unknown = isinstance(error, OutcomeUnknownError)
    return f"a refusal is reported as an unknown outcome: {error}" if refused and unknown else ""


def _violation_by_hand(program: Program, machine: SimulatedPosix) -> str:
    """Return a violation after the repeated command and a run, and after a run alone."""
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
    """Return a state after a power loss that has lost an effect which the command had confirmed."""
    now = _states(machine)
    for survivor in machine.after_power_loss(random.Random(0), 5, 6):
        then = _states(survivor)
        if then != now:
            return f"a power loss reverts a confirmed effect: {now} is {then}"
    return ""


def _states(machine: SimulatedPosix) -> dict[str, DatasetState]:
    store = World().store(machine)
    return store.bucket_log(0).refresh().datasets


def _machine(name: str) -> SimulatedPosix:
    return _initial_machine(name).after_kill()


@cache
def _initial_machine(name: str) -> SimulatedPosix:
    return SCENARIOS[name].machine() if name in SCENARIOS else OPERATORS[name].find()


def _subject(name: str) -> Subject:
    """Return a scenario or program as a subject of fault chains."""
    if name in SCENARIOS:
        scenario = SCENARIOS[name]
        return Subject(
            partial(_machine, name),
            lambda calls: scenario.run(calls, scenario.disturbed),
            {"": lambda calls: scenario.run(calls, scenario.after)},
            partial(_violation_of_runs, scenario),
        )
    program = OPERATORS[name]
    by_hand = cast(Callable[[PosixCalls], None], program.act)
    return Subject(
        partial(_machine, name),
        by_hand,
        {"": by_hand, "run ": lambda calls: World().run(calls, SOURCE)},
        partial(_violation_by_hand, program),
    )


CHAINS = Chains({name: _subject(name) for name in NAMES})


@dataclass(frozen=True, slots=True)
class _Played:
    """Whether the command confirmed its effect, or else the error."""

    answered: bool
    error: Exception | None = None


def _disturbed(
    name: str, machine: SimulatedPosix, kind: str, number: int, times: int, *, lost: bool = False
) -> tuple[Fault, Callable[[], _Played]]:
    """Play the scenario's run or the operator's command with the fault; it may fail, with a typed error.

    The result tells whether the command confirmed its effect.
    """
    clock = SimulatedClock()

    def act(calls: PosixCalls) -> None:
        if name in OPERATORS:
            OPERATORS[name].act(cast(SimulatedPosix, calls))
        else:
            SCENARIOS[name].run(calls, SCENARIOS[name].disturbed)

    def under_lock(calls: PosixCalls, run: str) -> None:
        scenario = SCENARIOS[name]
        fs = scenario.world.store(calls).fs
        with SteppedLock(fs, ROOTS.store, run, _LEASE_S, clock):
            scenario.run(calls, scenario.disturbed, clock)

    def meanwhile() -> None:
        TIMES[kind](clock)
        with suppress(DistcommitError, OSError):  # it may fail as any run
            under_lock(machine, "second")

    if kind in TIMES:
        fault = Fault(0, number, meanwhile=meanwhile)
    elif kind == UNSYNCED:
        fault = Fault(errno.EIO, number, times, besides=machine.give_up, concerns=_syncs)
    elif kind in REFUSING:
        code, spared = REFUSING[kind]
        fault = Fault(code, number, _EVER, concerns=lambda name, arguments: name not in spared)
    elif kind in WHOLE:
        fault = Fault(0, number, times, damage=WHOLE[kind], concerns=_reads_store)
    else:
        fault = Fault(getattr(errno, kind), number, times, lost)
    calls = cast(PosixCalls, FaultyCalls(machine, fault))

    def run() -> _Played:
        try:
            if kind in TIMES:
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


def sites(name: str, kind: str) -> list[str]:
    """Yield the kinds of operations and places that the fault may strike in an undisturbed run, one by one."""
    if kind in (UNSYNCED, *REFUSING):
        return _traced(name, kind)
    return _traced(name, "cut" if kind in WHOLE else "slow" if kind in TIMES else "EIO")


@cache
def _traced(name: str, kind: str) -> list[str]:
    fault, run = _disturbed(name, _machine(name), kind, _NEVER, 1)
    run()
    return fault.sites


def _crashed(machine: SimulatedPosix, run: Callable[[], _Played], history: str, number: int) -> SimulatedPosix:
    """Return the machine after a power loss at one of a few places in that run."""
    rng = random.Random(history)
    crashes = [
        survivor for crash, survivor, _ in crashes_of(machine, lambda calls: run(), rng, _few(rng)) if crash.state
    ]
    return crashes[len(crashes) * number // CRASHES] if crashes else machine.after_kill()


def _few(rng: random.Random) -> Callable[[int], bool]:
    return lambda operation: rng.randrange(20) == 0
