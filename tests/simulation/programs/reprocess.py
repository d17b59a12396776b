"""Programs for the crash explorer: rejected records are reprocessed, killed anywhere, abandoned halfway, and beside
other runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.errors import DistcommitError
from distcommit.core.records.log_records import DatasetStatus
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.model_flow import model_flow, without_right
from tests.models.rejecting_flows import TurningAway
from tests.simulation.programs.parts import Program, new_machine, staged, unsettled
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, World

_SOURCE = ModelSource({"a": ModelDataset({"0": 3, "1": 2}, units=2), "b": ModelDataset({"0": 2})})
_MORE = ModelSource({"a": ModelDataset({"0": 5, "1": 2}), "b": ModelDataset({"0": 2})})
_BEFORE = World(max_attempts=1, flow=TurningAway(frozenset({"a/0/1", "a/0/2", "a/1/0", "b/0/1"})))
_NOW = replace(_BEFORE, flow=TurningAway(frozenset({"a/1/0", "b/0/1"}), frozenset({"a/0/2"})))
"""Of dataset a's rejected records one is good now, one is filtered, one is rejected again."""
_FIXED = replace(_BEFORE, flow=TurningAway())


def _turned_away() -> SimulatedPosix:
    machine = new_machine()
    _BEFORE.run(machine, _SOURCE)
    machine.syncfs("/")
    return machine


def _reprocessed() -> SimulatedPosix:
    machine = _turned_away()
    _reprocess(machine)
    machine.syncfs("/")
    return machine


def _reprocess(machine: SimulatedPosix, world: World = _NOW) -> None:
    if not world.reprocess(machine, _SOURCE, "a").succeeded:
        raise AssertionError("rejected records cannot be reprocessed")


def _audit(machine: SimulatedPosix) -> AuditResult:
    return audit_store(_NOW.store(machine), _SOURCE.provenance, deep=True)


def _wrong(machine: SimulatedPosix, world: World, source: ModelSource, rejected: tuple[int, ...]) -> str:
    """Return a violation after a whole run: each record is in one place, and that many of dataset a are errors."""
    before = world.watermarks(machine)
    world.run(machine, source)
    audit = _audit(machine)
    errors = sum(row.rejected for row in audit.partitions if row.dataset == "a")
    ends = {urn: dict(dataset.partitions) for urn, dataset in source.datasets.items()}
    reached = {urn: dict(watermark.positions) for urn, watermark in world.watermarks(machine).items()}
    records = sum(sum(dataset.partitions.values()) for dataset in source.datasets.values())
    if not audit.exact or audit.records + audit.rejected_records + audit.filtered != records or errors not in rejected:
        return f"{errors} of {rejected} are errors, {records} records: {audit}"
    if reached != ends or any(not world.watermarks(machine)[urn].covers(low) for urn, low in before.items()):
        return f"watermarks are {reached}, expected {ends}"
    return ""


def _deleted(machine: SimulatedPosix, world: World, source: ModelSource, rejected: tuple[int, ...]) -> str:
    """Return a violation, also if superseded files are still there two runs later."""
    wrong = _wrong(machine, world, source, rejected) or _wrong(machine, world, source, rejected)
    superseded = _audit(machine).superseded_files
    return wrong or (f"{superseded} superseded files are left" if superseded else "") or _left_staged(machine)


def _left_staged(machine: SimulatedPosix) -> str:
    still_staged = staged(machine)
    return f"left behind in task output: {still_staged}" if still_staged else ""


def _run_and_reprocess(machine: SimulatedPosix) -> str:
    wrong = _wrong(machine, _NOW, _SOURCE, (1, 3))
    if wrong:
        return wrong
    _reprocess(machine)
    wrong = _wrong(machine, _NOW, _SOURCE, (1,))
    if wrong:
        return wrong
    _reprocess(machine, _FIXED)
    return _deleted(machine, _FIXED, _MORE, (0,))


def _reprocess_at_once(machine: SimulatedPosix) -> str:
    """Repeat the command, without a run in between."""
    _reprocess(machine)
    return _wrong(machine, _NOW, _MORE, (1,)) or _deleted(machine, _NOW, _MORE, (1,))


def _ingest(machine: SimulatedPosix) -> None:
    _NOW.run(machine, _MORE)


def _ingest_again(machine: SimulatedPosix) -> str:
    return _deleted(machine, _NOW, _MORE, (1,))


def _quarantined() -> SimulatedPosix:
    """Let a reprocess die in its commit, with one file published; an operator quarantines the dataset."""
    machine = _turned_away()
    remaining = [1]

    def gate(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(f"{ROOTS.output}/") and "-00000_" in operation.path:
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crashed

    machine.gate = gate
    with suppress(Crashed):
        _reprocess(machine)
    machine.gate = None
    operator_actions.quarantine(_NOW.store(machine), "a", "person")
    machine.syncfs("/")
    return machine


def _abandon(machine: SimulatedPosix) -> None:
    operator_actions.abandon(_NOW.store(machine), "a", "person")


def _abandon_and_reprocess(machine: SimulatedPosix) -> str:
    if unsettled(machine).status is not DatasetStatus.IDLE:
        with suppress(DistcommitError):
            _abandon(machine)
    return _wrong(machine, _NOW, _SOURCE, (3,)) or _run_and_reprocess(machine)


_WITHOUT_RIGHT, _WITH_RIGHT = World(flow=without_right), World(flow=model_flow)
_OFFSETS = ModelSource({"a": ModelDataset({"0": 6}, units=2)})


def _without_right() -> SimulatedPosix:
    machine = new_machine()
    _WITHOUT_RIGHT.run(machine, _OFFSETS)
    machine.syncfs("/")
    return machine


def _mended(machine: SimulatedPosix) -> None:
    _WITH_RIGHT.reprocess(machine, _OFFSETS, "a")


def _reprocess_until_clean(machine: SimulatedPosix) -> str:
    """Repeat the command until the branch has only errors that it rejects itself."""
    before = _WITH_RIGHT.watermarks(machine)
    _WITH_RIGHT.run(machine, _OFFSETS)
    _mended(machine)
    for _ in range(2):
        _WITH_RIGHT.run(machine, _OFFSETS)
    return _WITH_RIGHT.violation(machine, _OFFSETS, before)


REPROCESS = (
    Program("reprocess-optional", _without_right, _mended, _reprocess_until_clean),
    Program("reprocess", _turned_away, _reprocess, _run_and_reprocess),
    Program("reprocess-at-once", _turned_away, _reprocess, _reprocess_at_once),
    Program("reprocess-again", _reprocessed, _reprocess, _run_and_reprocess),
    Program("reprocess-then-ingest", _reprocessed, _ingest, _ingest_again),
    Program("reprocess-abandoned", _quarantined, _abandon, _abandon_and_reprocess),
)
