"""Crash-state exploration: crash the product at every operation, in every state that a power loss may leave.

Each state is recovered, crashed in the recovery too, and compared with the required outcome. After ALICE (Pillai et
al., OSDI 2014) and CrashMonkey (Mohan et al., OSDI 2018).
"""

from __future__ import annotations

import functools
import gc
import itertools
import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import msgspec
from xxhash import xxh3_64_intdigest

from distcommit.core.errors import DistcommitError
from distcommit.core.records.log_records import Checkpoint
from distcommit.protocol.paths.staging import WRITING
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.testing.fakes.faulty_calls import Operation
from tests.simulation.decoded import decoded_once
from tests.simulation.meeting_points import Meeting, Met
from tests.simulation.programs import PROGRAMS
from tests.simulation.programs.parts import Program
from tests.simulation.scenarios import SCENARIOS, Scenario
from tests.simulation.simulated_posix import SimulatedPosix

_BOUND = 5
"""All subsets of up to this many unsynced effects are tried; beyond it a documented selection (`after_power_loss`)."""
_SAMPLES = 6

Part = TypeVar("Part")
History = tuple[str, str]
"""A history as `--replay` takes it, and its violation, if any."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Place of a crash: the operation of the run before which it strikes, and one of the states it may leave (0: a
    kill)."""

    operation: int
    state: int

    def __str__(self) -> str:
        return f"{self.operation}.{self.state}"


@dataclass(slots=True)
class Findings:
    """Results of an exploration.

    `states`: hashes of distinct durable images, each recovered and checked. `met`: images of successful recoveries at
    the beginning of planning.
    """

    states: set[int] = field(default_factory=set)
    met: set[bytes] = field(default_factory=set)
    violations: list[dict[str, str]] = field(default_factory=list)
    sites: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0


def explore(seconds: float, seed: int, processes: int = 2, scenarios: Sequence[str] = ()) -> dict[str, object]:
    """Explore for a time, and add up the findings of all processes.

    Returns:
        plain values: `states`, `violations`, `seconds`, `seed`, `coverage` (operation sites crashed at, by count),
            `recoveries`, and `met_at`: the number of images at which scenarios' runs met, each continued once.
    """
    names = list(scenarios) or [*SCENARIOS, *PROGRAMS]
    processes = min(processes, len(names))
    began = time.monotonic()
    total = Findings()
    with shares(processes, _explore_share, names, seconds, seed) as parts:
        for part in parts:
            total.states |= part.states
            total.violations += part.violations
            total.sites.update(part.sites)
            total.recoveries += part.recoveries
            total.met |= part.met
    return {
        "states": len(total.states),
        "violations": total.violations,
        "seconds": round(time.monotonic() - began, 1),
        "seed": seed,
        "recoveries": total.recoveries,
        "met_at": len(total.met),
        "scenarios": names,
        "coverage": dict(sorted(total.sites.items())),
    }


@contextmanager
def shares(
    processes: int,
    work: Callable[[Sequence[str], float, int, int, int], Part],
    names: Sequence[str],
    seconds: float,
    seed: int,
) -> Iterator[Iterator[Part]]:
    """Yield the findings of each process; a single one works in this process, where it can be measured."""
    if processes == 1:
        yield iter([work(names, seconds, seed, 0, 1)])
        return
    with ProcessPoolExecutor(processes) as pool:
        futures = [pool.submit(work, names, seconds, seed, share, processes) for share in range(processes)]
        yield (future.result() for future in futures)


def replay(text: str) -> str:
    """Run one history, `scenario:operation.state[:operation.state...]`, and return the violation, if any."""
    name, *places = text.split(":")
    crashes = [Crash(*map(int, place.split("."))) for place in places]
    if name in PROGRAMS:
        program = PROGRAMS[name]
        runs = crashes_of(program.find(), program.act, _rng(name, []), _only(crashes[0]))
        reached = (machine for at, machine, _ in runs if at == crashes[0])
        crashed = next(reached, None)
        return program_violation(program, crashed) if crashed else f"this program has no operation {crashes[0]}"
    scenario = SCENARIOS[name]
    machine, source = scenario.machine(), scenario.disturbed
    for depth, crash in enumerate(crashes):
        crashed_machine = next(
            (
                after
                for at, after, _ in crashed_runs(scenario, machine, source, _rng(name, crashes[:depth]), _only(crash))
                if at == crash
            ),
            None,
        )
        if crashed_machine is None:
            return f"this run has no operation {crash}"
        machine, source = crashed_machine, scenario.after
    return recovery_violation(scenario, machine)


def _explore_share(names: Sequence[str], seconds: float, seed: int, share: int, shares: int) -> Findings:
    """Recover crashes in one process until time is up."""
    until = time.monotonic() + seconds
    findings = Findings()
    gc.freeze()  # imports live as long as the process
    gc.set_threshold(20_000, 20, 100)  # hashes and caches stay, and reference counts free the data of a run
    with decoded_once():
        for history, wrong in recoveries(names[share::shares], seed * 1000 + share, findings):
            findings.recoveries += 1
            if wrong:
                findings.violations.append({"history": history, "violation": wrong})
            if time.monotonic() > until:
                break
    return findings


def recoveries(names: Sequence[str], seed: int, found: Findings) -> Iterator[History]:
    """Yield histories and their violations, endlessly if there is a scenario.

    They are crashes of programs, crashes of scenarios' runs, and crashes in the recoveries from these. Each kind has
    the same processor time.

    Args:
        names: of scenarios and programs.
        seed: chooses the crashes in recoveries.
        found: its states are not tried again; new states are added.
    """
    first: list[tuple[Scenario, Crash, SimulatedPosix]] = []
    kinds = [
        _in_turns([_of_program(PROGRAMS[name], found) for name in names if name in PROGRAMS]),
        _in_turns([_of_scenario(SCENARIOS[name], first, found) for name in names if name in SCENARIOS]),
    ]
    if any(name in SCENARIOS for name in names):
        kinds.append(_of_recoveries(first, random.Random(seed), found))  # the others come before it
    return _in_turns(kinds)


def _in_turns(tries: Sequence[Iterator[History]]) -> Iterator[History]:
    """Yield the histories of all of them, with the same processor time for each.

    So neither cheap nor expensive histories wait for the others, and a short time reaches all of them.
    """
    spent = dict.fromkeys(tries, 0.0)
    while spent:
        histories = min(spent, key=spent.__getitem__)
        began = time.process_time()
        history = next(histories, None)
        if history is None:
            del spent[histories]
            continue
        spent[histories] += time.process_time() - began
        yield history


def _of_program(program: Program, found: Findings) -> Iterator[History]:
    """Yield crashes of a program."""
    for crash, machine, site in crashes_of(program.find(), program.act, _rng(program.name, [])):
        if _is_new(machine, site, found):
            yield f"{program.name}:{crash}", program_violation(program, machine)


def _of_scenario(
    scenario: Scenario, first: list[tuple[Scenario, Crash, SimulatedPosix]], found: Findings
) -> Iterator[History]:
    """Yield crashes of a scenario's run, and add them to `first`."""
    for crash, machine, site in crashed_runs(scenario, scenario.machine(), scenario.disturbed, _rng(scenario.name, [])):
        if _is_new(machine, site, found):
            first.append((scenario, crash, machine))
            yield f"{scenario.name}:{crash}", recovery_violation(scenario, machine.after_kill(), found.met)


def _of_recoveries(
    first: Sequence[tuple[Scenario, Crash, SimulatedPosix]], rng: random.Random, found: Findings
) -> Iterator[History]:
    """Yield crashes in the recoveries from these crashes; there must be one, and more may be added meanwhile."""
    while True:
        scenario, crash, machine = rng.choice(first)
        pick = _one_in(rng, 12)
        for second, again, site in crashed_runs(
            scenario, machine.after_kill(), scenario.after, _rng(scenario.name, [crash]), pick
        ):
            if _is_new(again, site, found):
                yield f"{scenario.name}:{crash}:{second}", recovery_violation(scenario, again, found.met)


def crashed_runs(
    scenario: Scenario,
    machine: SimulatedPosix,
    source: object,
    rng: random.Random,
    pick: Callable[[int], bool] = lambda operation: True,
) -> Iterator[tuple[Crash, SimulatedPosix, str]]:
    """Run the job once and yield, for each mutating operation that `pick` picks, the machines that a crash before it
    may leave."""
    yield from crashes_of(machine, lambda calls: scenario.run(calls, source), rng, pick)  # type: ignore[arg-type]


def crashes_of(
    machine: SimulatedPosix,
    act: Callable[[SimulatedPosix], object],
    rng: random.Random,
    pick: Callable[[int], bool] = lambda operation: True,
) -> Iterator[tuple[Crash, SimulatedPosix, str]]:
    """Let `act` happen once, and yield the machines that a crash before each of its operations may leave.

    Each state comes once, from all over the run: of each operation first a kill and one power loss, later the others.
    Each machine comes with the site of the operation.
    """
    snapshots: list[tuple[int, SimulatedPosix, str]] = []
    number, given_before, seed = count(), set[int](), rng.getrandbits(60)

    def gate(operation: Operation) -> None:
        place = next(number)
        if pick(place):
            snapshots.append((place, machine.after_kill(), operation.site))

    machine.gate = gate
    act(machine)
    machine.gate = None
    end = next(number)
    if pick(end):  # otherwise a state that equals one of the end's might carry that name, and could not be replayed
        snapshots.append((end, machine.after_kill(), "end"))
    random.Random(seed).shuffle(snapshots)
    places = [_states_at(place, snapshot, seed, given_before, site) for place, snapshot, site in snapshots]
    for states in places:
        yield from itertools.islice(states, 2)
    for states in places:
        yield from states


def _states_at(
    place: int, snapshot: SimulatedPosix, seed: int, known: set[int], site: str
) -> Iterator[tuple[Crash, SimulatedPosix, str]]:
    yield Crash(place, 0), snapshot.after_kill(), site
    chance = random.Random(seed + place)  # a state's number does not depend on other picked or known states
    for state, survivor in snapshot.power_losses(chance, _BOUND, _SAMPLES, known):
        yield Crash(place, state), survivor, site


def recovery_violation(scenario: Scenario, machine: SimulatedPosix, known: set[bytes] | None = None) -> str:
    """Recover that machine by one undisturbed run, and return the violation, if any.

    Args:
        scenario: the job.
        machine: the state after a crash.
        known: images that successful recoveries had reached. A recovery that reaches one of them is not continued
            (`meeting_points`); new ones are added.
    """
    try:
        before = scenario.world.watermarks(machine)
        meeting = Meeting(set() if known is None else known, machine, repr((scenario.name, before)))
        result = scenario.world.run(machine, scenario.after, launched=meeting.watching)
        wrong = scenario.world.violation(machine, scenario.after, before)
    except Met:
        return ""
    except (DistcommitError, OSError, AssertionError, ValueError) as error:
        return f"recovery fails: {''.join(traceback.format_exception(error))}"
    wrong = wrong or ("" if result.succeeded else f"recovery does not succeed: {result}")
    if not wrong:
        meeting.ended_well()
    return wrong


def program_violation(program: Program, machine: SimulatedPosix) -> str:
    """Recover a crashed program on that machine, and return the violation, if any."""
    try:
        return program.recover(machine)
    except (DistcommitError, OSError, AssertionError, ValueError) as error:
        return f"recovery fails: {''.join(traceback.format_exception(error))}"


def _is_new(machine: SimulatedPosix, site: str, found: Findings) -> bool:
    """Return whether it was not seen before; add its state and site."""
    key = xxh3_64_intdigest(msgspec.msgpack.encode(canonical(machine)))
    if key in found.states:
        return False
    found.states.add(key)
    found.sites[site] += 1
    return True


def _rng(name: str, crashes: Sequence[Crash]) -> random.Random:
    return random.Random(f"{name}{[str(crash) for crash in crashes]}")


def _one_in(rng: random.Random, chance: int) -> Callable[[int], bool]:
    return lambda operation: rng.randrange(chance) == 0


def _only(crash: Crash) -> Callable[[int], bool]:
    return lambda operation: operation == crash.operation


_IDS = re.compile(r"[0-9a-f]{32}|\d{8}T\d{6}-[0-9a-f]{12}|[0-9a-f]{16}(?=\.parquet)")
_TEMPORARY = re.compile(r"\.tmp-(.*)-[0-9a-f]{32}$")


def canonical(machine: SimulatedPosix) -> list[tuple[str, str]]:
    """Return the durable image: paths with ids numbered by first appearance, and contents by meaning, not by bytes."""
    numbers: dict[str, str] = {}
    lines = []
    for _, path, data in machine.files():
        pieces = _pieces(path)
        shown = pieces[0]
        for place in range(1, len(pieces), 2):
            shown += numbers.setdefault(pieces[place], f"#{len(numbers)}") + pieces[place + 1]
        lines.append((shown, _content(path, data) if data else "folder" if data is None else "empty"))
    return sorted(lines)


@functools.lru_cache(200_000)
def _pieces(path: str) -> list[str]:
    """Split a path; every second part is an id. Temporary names have no number."""
    return re.split(f"({_IDS.pattern})", _TEMPORARY.sub(r".tmp \1", path))


@functools.lru_cache(20_000)
def _content(path: str, data: bytes) -> str:
    if "/log/" in path:
        try:
            record = decode_segment(data, path).record
        except DistcommitError:
            return "cut"
        if isinstance(record, Checkpoint):
            return f"checkpoint of {len(record.datasets)}"
        return str(_IDS.sub("#", repr(record)))[:80] if len(repr(record)) < 200 else type(record).__name__
    if path.endswith((".parquet", ".gz", ".orc", WRITING)):
        return "whole" if data[-4:] == b"PAR1" or b" distcommit" in data[-64:] else "cut"
    return "whole"
