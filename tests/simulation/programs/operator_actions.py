"""Programs for the crash explorer: operator actions on a quarantined dataset or on a watermark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import DatasetStatus, SetWatermark
from distcommit.core.records.sealed_sequences import StepBatch
from distcommit.core.watermark import Position, Watermark
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.operator import operator_actions
from distcommit.stores.operator.operator_actions import Release
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import (
    ASIDE,
    SOURCE,
    Program,
    half_done,
    new_machine,
    require_refused,
    run_and_look,
    staged,
    unsettled,
    violation_after_set_back,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World


def _quarantined() -> SimulatedPosix:
    """Quarantine a dataset by a run: of its sealed sequence one file is published, the other one is moved aside."""
    machine, world = new_machine(), World()
    half_done(machine, world, moved=2)
    machine.rename_noreplace(staged(machine)[0], ASIDE)
    world.run(machine, SOURCE)
    machine.syncfs("/")
    return machine


def _abandon(machine: SimulatedPosix) -> None:
    if urn := unsettled(machine).dataset_urn:
        operator_actions.release(World().store(machine), urn, Release.ABANDON, "person")


def _abandon_and_run(machine: SimulatedPosix) -> str:
    _abandon(machine)
    return run_and_look(machine, World(), SOURCE)


def _repair_and_retry(machine: SimulatedPosix) -> None:
    state = unsettled(machine)
    if state.status is DatasetStatus.QUARANTINED:
        fs, store = SimulatedFileSystem(machine), World().store(machine)
        lost = next(
            (
                file.source
                for batch in (state.sequence.steps if state.sequence else ())
                for file in _renames(batch, store.fs)
                if fs.status(file.source) is None and fs.status(file.target) is None
            ),
            None,
        )
        if lost is not None:
            fs.rename(ASIDE, lost)
            fs.sync([lost.rpartition("/")[0]], ROOTS.staging)
        operator_actions.release(store, state.dataset_urn, Release.RETRY, "person")


def _renames(batch: StepBatch, fs: FileSystem) -> list[FsRenameCommitStep]:
    steps = load_steps([batch], StepContext(fs, ROOTS.staging, ROOTS.output))
    return [step for step in steps if isinstance(step, FsRenameCommitStep)]


def _retry_and_run(machine: SimulatedPosix) -> str:
    _repair_and_retry(machine)
    return run_and_look(machine, World(), SOURCE)


def _accept(machine: SimulatedPosix) -> None:
    if urn := unsettled(machine).dataset_urn:
        operator_actions.release(World().store(machine), urn, Release.ACCEPT, "person")


def _accept_and_run(machine: SimulatedPosix) -> str:
    _accept(machine)
    wrong = run_and_look(machine, World(), SOURCE)
    accepted = [s for s in World().store(machine).bucket_log(0).refresh().datasets.values() if s.accepted_epochs]
    if len(accepted) != 1 or accepted[0].status is not DatasetStatus.IDLE:
        return f"accepted: {accepted}"
    only_a_gap = "duplicates=0" in wrong and "past_watermark=0" in wrong and "unreadable=[]" in wrong
    return "" if only_a_gap else wrong or "lost records are not missing"


def _refusals(machine: SimulatedPosix) -> None:
    """Require that forbidden operator actions are refused and change nothing, and so does a source that plans a
    quarantined dataset."""
    store = World().store(machine)
    if World().run(machine, ModelSource(SOURCE.datasets, careless=True)).succeeded:
        raise AssertionError("a run succeeds though a dataset is quarantined")
    urn = unsettled(machine).dataset_urn
    idle = next(other for other in SOURCE.datasets if other != urn)
    require_refused(
        (
            partial(operator_actions.retry, store, idle, "person"),
            partial(operator_actions.accept, store, idle, "person"),
            partial(operator_actions.abandon, store, idle, "person"),
            partial(operator_actions.quarantine, store, idle, "person"),
            partial(operator_actions.set_watermark, store, urn, None, "person"),
            partial(open_store, SimulatedFileSystem(machine), ROOTS, "another job", create=False),
            partial(open_store, SimulatedFileSystem(machine), ROOTS, "job", 7, create=True),
            partial(open_store, SimulatedFileSystem(machine), replace(ROOTS, store="/job/none"), "job", create=False),
            partial(open_store, SimulatedFileSystem(machine), replace(ROOTS, store="/job/none"), "job", create=True),
        )
    )


_ONLY_B = ModelSource({"b": SOURCE.datasets["b"]})
_ORIGIN = {"0": 0, "1": 0}
_AHEAD, _BACK = Watermark({"0": 1, "1": 1}), Watermark({"0": 1, "1": 0})


def _read(source: ModelSource) -> SimulatedPosix:
    machine = new_machine()
    World().run(machine, source)
    machine.syncfs("/")
    return machine


def _set(watermark: Watermark, machine: SimulatedPosix) -> None:
    operator_actions.set_watermark(World().store(machine), "a", watermark, "person")


def _begins(machine: SimulatedPosix) -> Mapping[str, Position]:
    """Return the watermark from which all records of dataset a must exist."""
    return World().store(machine).bucket_log(0).refresh().state_of("a").origin


def _set_ahead_and_run(machine: SimulatedPosix) -> str:
    """Require that an unread dataset begins at the watermark that an operator set."""
    if "a" not in World().watermarks(machine):
        _set(_AHEAD, machine)
    World().run(machine, SOURCE)
    begins = _begins(machine)
    if begins not in (_AHEAD.positions, _ORIGIN):  # the second, if a run came before the operator
        return f"dataset a begins at {begins}"
    return World().violation(machine, SOURCE, {}, set_by_hand=True)


def _set_back_and_run(machine: SimulatedPosix) -> str:
    """Require that exactly the records above the operator's watermark are published a second time."""
    log = World().store(machine).bucket_log(0)
    records = [segment.record for _, segment in log.segments() if not isinstance(segment, DistcommitError)]
    if not any(isinstance(record, SetWatermark) for record in records):
        _set(_BACK, machine)
    World().run(machine, SOURCE)
    return violation_after_set_back(machine, World(), SOURCE, 2)


def _skipped() -> SimulatedPosix:
    """Read two datasets, and skip the records that arrive afterwards."""
    machine = _read(SOURCE)
    operator_actions.set_watermark(World().store(machine), "a", _SKIPPED_TO, "person")
    machine.syncfs("/")
    return machine


_SKIPPED_TO, _WITHIN = Watermark({"0": 5, "1": 1}), Watermark({"0": 3, "1": 1})
_LONGER = ModelSource({**SOURCE.datasets, "a": ModelDataset({"0": 6, "1": 1})})


def _run_after_skipping(machine: SimulatedPosix) -> str:
    """Require that records above the operator's watermark are read, and those below still count as skipped."""
    if World().watermarks(machine)["a"] == _SKIPPED_TO:
        _set(_WITHIN, machine)
    skipped = World().store(machine).bucket_log(0).refresh().state_of("a").skipped
    if [(skipped_range.low, skipped_range.high) for skipped_range in skipped] != [(2, 3)]:
        return f"skipped are {skipped}"
    World().run(machine, _LONGER)
    audit = audit_store(World().store(machine), _LONGER.provenance, deep=True)
    records = sum(sum(dataset.partitions.values()) for dataset in _LONGER.datasets.values())
    exact = audit.exact and (audit.records, audit.skipped) == (records - 1, 1)
    return World().violation_beside(machine) if exact else f"not all but one record are published: {audit}"


def _stopped() -> SimulatedPosix:
    """Stop a dataset that a run could not read."""
    machine = new_machine()
    broken = replace(SOURCE.datasets["a"], fails=frozenset("1"))
    World(stop_after_failed_runs=1).run(machine, ModelSource({**SOURCE.datasets, "a": broken}))
    machine.syncfs("/")
    return machine


def _read_again(machine: SimulatedPosix) -> None:
    store = World().store(machine)
    if store.bucket_log(0).refresh().state_of("a").is_stopped:
        operator_actions.release(store, "a", Release.RETRY, "person")


def _read_again_and_run(machine: SimulatedPosix) -> str:
    _read_again(machine)
    return run_and_look(machine, World(), SOURCE)


def _restart(machine: SimulatedPosix) -> None:
    if urn := unsettled(machine).dataset_urn:
        operator_actions.release(World().store(machine), urn, Release.RESTART, "person")


def _restart_and_run(machine: SimulatedPosix) -> str:
    """Require that the restarted dataset is read from its beginning.

    A dataset that was abandoned by a command that died before it deleted the watermark has none either.
    """
    _restart(machine)
    return run_and_look(machine, World(), SOURCE)


def _pending() -> SimulatedPosix:
    machine = new_machine()
    half_done(machine, World())
    machine.syncfs("/")
    return machine


def _quarantine(machine: SimulatedPosix) -> None:
    if unsettled(machine).status is DatasetStatus.PENDING:
        operator_actions.quarantine(World().store(machine), unsettled(machine).dataset_urn, "person")


def _quarantine_and_retry(machine: SimulatedPosix) -> str:
    """Require that no run continues the dataset until it is released, while the other dataset is published.

    If a run came before the operator, there is nothing to quarantine.
    """
    urn = unsettled(machine).dataset_urn
    if not urn:
        return run_and_look(machine, World(), SOURCE)
    _quarantine(machine)
    if World().run(machine, SOURCE).succeeded or unsettled(machine).dataset_urn != urn:
        return f"a run has continued {urn}, which an operator had quarantined"
    operator_actions.release(World().store(machine), urn, Release.RETRY, "person")
    return run_and_look(machine, World(), SOURCE)


OPERATOR_ACTIONS = (
    Program("abandon", _quarantined, _abandon, _abandon_and_run),
    Program("retry", _quarantined, _repair_and_retry, _retry_and_run),
    Program("accept", _quarantined, _accept, _accept_and_run),
    Program("restart", _quarantined, _restart, _restart_and_run),
    Program("quarantined-by-hand", _pending, _quarantine, _quarantine_and_retry),
    Program("refusals", _quarantined, _refusals, _abandon_and_run),
    Program("read-again", _stopped, _read_again, _read_again_and_run),
    Program("set-ahead", partial(_read, _ONLY_B), partial(_set, _AHEAD), _set_ahead_and_run),
    Program("set-back-within-skipped", _skipped, partial(_set, _WITHIN), _run_after_skipping),
    Program("set-back", partial(_read, SOURCE), partial(_set, _BACK), _set_back_and_run),
)
