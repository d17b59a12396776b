"""Programs for the crash explorer: sequences in a custom store that cannot be committed, and their release by an
operator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConflictError, CorruptError, DistcommitError, UnknownVersionError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.records.sealed_sequences import SealedSequence, StepBatch
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_log_record
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.logs.fencing import fence_bucket, fence_job
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from tests.simulation.programs.broken_steps import BROKEN, BrokenCommitStep
from tests.simulation.programs.custom_steps import NoticeCommitStep
from tests.simulation.programs.parts import Program, new_machine, put_file, require_refused
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem

_FOLDER = "/job/stores"
_ATTEMPTS = 2
_REACHED = Watermark({"": 1})


def _context(machine: SimulatedPosix) -> StepContext:
    return StepContext(SimulatedFileSystem(machine), ROOTS.staging, ROOTS.output)


def _open(machine: SimulatedPosix) -> LogCommitStepStore:
    """Open the store, in a process of its own."""
    context = _context(machine)
    return LogCommitStepStore(context.fs, _FOLDER, context, buckets=1, max_attempts=_ATTEMPTS)


def _log_store(machine: SimulatedPosix) -> JobStore:
    roots = Roots(f"{_FOLDER}/{folder_of('job')}", ROOTS.staging, ROOTS.output)
    return open_store(SimulatedFileSystem(machine), roots, "job", 1, create=True)


def _state(machine: SimulatedPosix, urn: str) -> DatasetState:
    return _log_store(machine).bucket_log(0).refresh().state_of(urn)


def _with_staged_file() -> SimulatedPosix:
    machine = new_machine()
    for folder in (ROOTS.staging, ROOTS.output):
        machine.mkdir(folder)
    put_file(machine, f"{ROOTS.staging}/one", b"one")
    return machine


def _failing(*, can_be_undone: bool) -> SimulatedPosix:
    """Seal a sequence whose process is gone, and whose last step or file fails until the cause is removed."""
    machine = _with_staged_file()
    store, context = _open(machine), _context(machine)
    store.put("job", "d", FsRenameCommitStep(context, "one", "out/one")) if store.create("job") else None
    if not can_be_undone:
        store.put("job", "d", BrokenCommitStep(context, "note-d", "execute by itself"))
        put_file(machine, BROKEN, b"")
    store.put("job", "d", HighWatermarkCommitStep("d", None, _REACHED))
    store.seal("job", "d")
    if can_be_undone:
        machine.mkdir(f"{ROOTS.output}/out")
        machine.mkdir(f"{ROOTS.output}/out/one")  # a foreign file at the target path
    machine.syncfs("/")
    return machine


def _redo(machine: SimulatedPosix) -> None:
    """Try to commit the sequence by more processes than there are attempts."""
    for _ in range(_ATTEMPTS + 1):
        sequence = _open(machine).get_commit_sequence("job", "d")
        if sequence is not None:
            require_refused([sequence.commit])


def _quarantined_at_last(machine: SimulatedPosix) -> LogCommitStepStore:
    _redo(machine)
    state = _state(machine, "d")
    if state.status is not DatasetStatus.QUARANTINED or len(state.tried_epochs) != _ATTEMPTS:
        raise AssertionError(f"it is not quarantined after {_ATTEMPTS} attempts: {state}")
    return _open(machine)


def _remove_cause_and_commit(machine: SimulatedPosix) -> str:
    """Require that it cannot be undone, and is committed once the cause is removed."""
    store = _quarantined_at_last(machine)
    require_refused([partial(store.release, "job", "d", "abandon")], ConflictError)
    if _state(machine, "d").status is not DatasetStatus.QUARANTINED:
        return "an abandon that was refused has changed something"
    machine.unlink(BROKEN)
    store.release("job", "d", "retry")
    sequence = store.get_commit_sequence("job", "d")
    if sequence is None or not sequence.commit():
        return "it is not committed after its cause was removed"
    return _all_there(machine, ["out/one", "note-d"])


def _accept(machine: SimulatedPosix) -> str:
    """Require that it counts as done: its watermark moves, and publishable files are published."""
    _quarantined_at_last(machine).release("job", "d", "accept", "person")
    return _all_there(machine, ["out/one"])


def _all_there(machine: SimulatedPosix, paths: list[str]) -> str:
    store, fs = _open(machine), _context(machine).fs
    missing = [path for path in paths if fs.status(f"{ROOTS.output}/{path}") is None]
    if missing or store.watermark("job", "d") != _REACHED or store.exists("job", "d"):
        return f"watermark {store.watermark('job', 'd')}, pending {store.exists('job', 'd')}, missing {missing}"
    return ""


def _undo(how: str, machine: SimulatedPosix) -> str:
    """Require that it is undone: its watermark is unchanged, and its records can be sealed again."""
    if _state(machine, "d").status is not DatasetStatus.IDLE:
        _redo(machine)
        _open(machine).release("job", "d", how)
    store, context = _open(machine), _context(machine)
    if store.watermark("job", "d") is not None or store.exists("job", "d"):
        return f"it is not undone: watermark {store.watermark('job', 'd')}"
    if context.fs.status(f"{ROOTS.staging}/one") is not None:
        return "the staged file is still there: a late process could publish it"
    put_file(machine, f"{ROOTS.staging}/two", b"two")
    store.put("job", "d", FsRenameCommitStep(context, "two", "two"))
    store.put("job", "d", HighWatermarkCommitStep("d", None, _REACHED))
    store.seal("job", "d")
    sequence = store.get_commit_sequence("job", "d")
    assert sequence is not None
    sequence.commit()
    return _all_there(machine, ["two"])


def _unreadable() -> SimulatedPosix:
    """Seal steps that no program ever wrote, and steps of a newer version, by a process that is gone."""
    machine = _with_staged_file()
    store = _log_store(machine)
    epoch = fence_job(store, "gone")
    log = store.bucket_log(0, epoch)
    run_alone(fence_bucket(log, epoch, "gone"))
    batches = {
        "corrupt": StepBatch(NoticeCommitStep.type_name, 1, b"\xc1"),
        "newer": StepBatch(NoticeCommitStep.type_name, 2, msgspec.msgpack.encode([["note"]])),
    }
    sequences = tuple(SealedSequence(urn, epoch, None, _REACHED, (batch,)) for urn, batch in batches.items())
    run_alone(log.settle(partial(next_log_record.seal, epoch=epoch, sequences=sequences)))
    machine.syncfs("/")
    return machine


def _read_steps(machine: SimulatedPosix) -> None:
    store = _open(machine)
    for urn in ("newer", "corrupt"):
        with suppress(CorruptError):  # an UnknownVersionError is one
            store.get_commit_sequence("job", urn)


def _tell_them_apart(machine: SimulatedPosix) -> str:
    """Require that unreadable steps are quarantined and acceptable; those of a newer version wait for a newer
    program."""
    _read_steps(machine)
    store = _open(machine)
    require_refused([partial(store.get_commit_sequence, "job", "newer")], UnknownVersionError)
    statuses = {urn: _state(machine, urn).status for urn in ("newer", "corrupt")}
    if statuses != {"newer": DatasetStatus.PENDING, "corrupt": DatasetStatus.QUARANTINED}:
        return f"they are {statuses}"
    refused: Callable[[], object] = partial(store.release, "job", "corrupt", "abandon")
    require_refused([refused], DistcommitError)
    store.release("job", "corrupt", "accept")
    return "" if store.watermark("job", "corrupt") == _REACHED else "the accepted sequence has not moved its watermark"


_CAN, _CANNOT = partial(_failing, can_be_undone=True), partial(_failing, can_be_undone=False)

CUSTOM_STORE_ENDS = (
    Program("own-store-retried", _CANNOT, _redo, _remove_cause_and_commit),
    Program("own-store-accepted", _CANNOT, _redo, _accept),
    Program("own-store-abandoned", _CAN, _redo, partial(_undo, "abandon")),
    Program("own-store-restarted", _CAN, _redo, partial(_undo, "restart")),
    Program("own-store-unreadable", _unreadable, _read_steps, _tell_them_apart),
)
