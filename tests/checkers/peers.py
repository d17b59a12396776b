"""The explorer's checker on the published rules of other systems: it must find their violations.

A checker that finds nothing in the product is evidence only if it finds known faults. The programs are in `peer_rules`,
with sound ones in which nothing may be found.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

import msgspec
from xxhash import xxh3_64_intdigest

from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.temporary_and_probes import TEMPORARY
from distcommit.testing.fakes.faulty_calls import Operation
from tests.checkers.peer_rules import (
    OUTPUT,
    PROGRAMS,
    ROOT,
    STAGING,
    STATE,
    STORE,
    Program,
    RefusedError,
    records_of,
)
from tests.simulation.explore import Crash
from tests.simulation.simulated_posix import SimulatedPosix

_BEFORE, _END, _LATER = 2, 6, 8
"""Records after an undisturbed run, after the next one, which crashes, and at the beginning of recovery."""
_BOUND, _SAMPLES = 8, 20
_RECOVERIES = 3
_RUN_ID = re.compile(r"[0-9a-f]{32}")


class PeerFinding(msgspec.Struct, frozen=True):
    """A violation of a peer's rule.

    `violation` and `history` are empty if nothing was found. `history`: the operations of the run that crashed, the
    crash, and the recovery. `crash`: its place as the explorer writes it. `states_tried`: distinct states that a crash
    may leave, up to the first that violates.
    """

    peer: str
    rule: str
    violation: str
    history: tuple[str, ...]
    crash: str
    states_tried: int


def peers(seed: int = 1) -> list[PeerFinding]:
    """Crash each peer's program at every operation, in the states that a kill or a power loss may leave.

    Args:
        seed: chooses among the states after a power loss if there are too many.
    """
    return [first_violation(program, seed) for program in PROGRAMS]


def first_violation(program: Program, seed: int = 1) -> PeerFinding:
    """Return the violation with the shortest history."""
    seen: set[int] = set()
    for crash, machine, operations in _crashed_runs(program, random.Random(seed)):
        key = xxh3_64_intdigest(_RUN_ID.sub("#", repr([item[1:] for item in machine.files()])).encode())
        if key in seen:
            continue
        seen.add(key)
        wrong = _violation(program, machine)
        if wrong:
            what = "killed" if crash.state == 0 else "power lost"
            history = (*operations, f"{what} here", "recovered")
            return PeerFinding(program.peer, program.rule, wrong, history, str(crash), len(seen))
    return PeerFinding(program.peer, program.rule, "", (), "", len(seen))


def _crashed_runs(program: Program, rng: random.Random) -> Iterator[tuple[Crash, SimulatedPosix, list[str]]]:
    """Yield the states after a crash before each mutating operation of the second run, with the operations before
    it."""
    machine = SimulatedPosix()
    for folder in (ROOT, OUTPUT, STAGING, STORE, STATE):
        machine.mkdir(folder)
    program.run(LocalFileSystem(machine), _BEFORE)
    machine.syncfs("/")
    snapshots: list[SimulatedPosix] = []
    operations: list[str] = []

    def gate(operation: Operation) -> None:
        snapshots.append(machine.after_kill())
        operations.append(_shown(operation, machine))

    machine.gate = gate
    program.run(LocalFileSystem(machine), _END)
    machine.gate = None
    snapshots.append(machine.after_kill())
    for place, snapshot in enumerate(snapshots):
        yield Crash(place, 0), snapshot.after_kill(), operations[:place]
        for state, survivor in enumerate(snapshot.after_power_loss(rng, _BOUND, _SAMPLES), 1):
            yield Crash(place, state), survivor, operations[:place]


def _violation(program: Program, machine: SimulatedPosix) -> str:
    """Return the violation at the crash or after recovery, by the rules of `World.violation`."""
    fs = LocalFileSystem(machine)
    before = program.watermark(fs) or 0
    missing = set(range(before)) - set(_published(fs) or ())
    if missing:
        return f"at the crash the watermark is {before}, without records {sorted(missing)}"
    error: Exception | None = None
    for _ in range(_RECOVERIES):
        try:
            program.run(fs, _LATER)
        except (RefusedError, OSError, ValueError) as caught:
            error = caught
        else:
            error = None
            break
    if error is not None:
        return f"recovery fails, {_RECOVERIES} times of {_RECOVERIES}: {type(error).__name__}: {error}"
    published = _published(fs)
    if published is None:
        return "a published file is torn"
    lost = sorted(set(range(_LATER)) - set(published))
    twice = sorted(record for record, count in published.items() if count > 1)
    watermark = program.watermark(fs)
    if lost or twice:
        faults = [f"records {lost} are lost" if lost else "", f"records {twice} are published twice" if twice else ""]
        return f"{' and '.join(filter(None, faults))}; the watermark is {watermark}"
    if watermark is None or watermark < before or watermark != _LATER:
        return f"the watermark is {watermark} after {before}, expected {_LATER}"
    staged = [
        path for path, _ in machine.walk(ROOT) if path.startswith((f"{STAGING}/", f"{STORE}/")) or TEMPORARY in path
    ]
    return f"left behind: {staged}" if staged else ""


def _published(fs: LocalFileSystem) -> Counter[int] | None:
    """Return how often each record is in the output; None if a file is truncated."""
    counted: Counter[int] = Counter()
    for entry in fs.list_folder(OUTPUT):
        if entry.name.startswith(TEMPORARY):
            continue
        records = records_of(fs.read(f"{OUTPUT}/{entry.name}"))
        if records is None:
            return None
        counted.update(records)
    return counted


def _shown(operation: Operation, machine: SimulatedPosix) -> str:
    """Return the operation with the path for a descriptor (an inode number, here), and without ids."""
    path = operation.path
    if path.startswith("<"):
        path = next((named_path for named_path, inode in machine.walk("/") if f"<{inode}>" == path), path)
    return f"{operation.kind} {_RUN_ID.sub('#', path).removeprefix(f'{ROOT}/')}"
