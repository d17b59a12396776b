"""What each run leaves of itself, for people and what watches for them.

<store>/runs/<epoch>-begun.json     as it has its epoch
<store>/runs/<epoch>-cancel.json    that it is to end: put by whoever wants it to
<store>/runs/<epoch>.json           when it has ended

What is published depends on none of it: a run that was killed leaves the first alone, and one that can't be read stands
for itself alone.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from distcommit.core.errors import ConflictError, DistcommitError, storage_error
from distcommit.core.ports import FileSystem
from distcommit.core.records.flow_counts import FlowCounts
from distcommit.core.run_outcome import RunOutcome
from distcommit.protocol.paths.store import BEGUN, CANCEL, RUNS, record_name, record_of
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

RECORD_VERSION = 1
BEGINNING_VERSION = CANCEL_VERSION = 1
KEPT = 100
"""How many of a kind a record names; the rest are counted."""
NOT_PLANNED = "not planned"
"""The kind of a reason: the source could not plan a dataset."""
_TRIES = 3
_Document = TypeVar("_Document", bound=msgspec.Struct)


class RunFacts(msgspec.Struct, frozen=True):
    """What a run knows of itself before it begins. `config`: the job as its file has it, without secrets; `versions`:
    of what it runs on, by name; `host` and `pid`: of the driver; `job_file`: its path there. `locked`: whether it holds
    the job's lock, and else says that it is alive in a folder of its own. `kept_runs` and `kept_tables`: how long what
    it leaves is kept."""

    config: dict[str, Any] = {}
    versions: dict[str, str] = {}
    host: str = ""
    pid: int = 0
    job_file: str = ""
    locked: bool = True
    kept_runs: int = 0
    kept_tables: int = 0


class RunBeginning(msgspec.Struct, frozen=True):
    """A run that has its epoch."""

    version: int
    job: str
    run_id: str
    epoch: int
    command: str
    who: str
    began_ms: int
    facts: RunFacts


class CancelRequest(msgspec.Struct, frozen=True):
    """That the run of an epoch is to end: who wants it to, and since when."""

    version: int
    epoch: int
    who: str
    at_ms: int


class RecordedReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a dataset (or a bucket) did not go through, or what is worth knowing of it. `remedy`: the words of the
    command that lets it go on, if the source has said so."""

    subject: str
    kind: str
    text: str
    remedy: tuple[str, ...] = ()


class RecordedReasons(msgspec.Struct, frozen=True):
    """The first of them, and how many were left out."""

    kept: tuple[RecordedReason, ...] = ()
    left_out: int = 0


class RecordedPhase(msgspec.Struct, frozen=True):
    """A phase with its counts. `completed`: False if an error ended it; then it counted what it had heard of."""

    name: str
    seconds: float
    completed: bool
    counts: dict[str, int]


class RunRecord(msgspec.Struct, frozen=True):
    """A run as it ended. `command`: what it was asked to do; `who` asked; times are milliseconds since 1970.

    `error_kind` and `error`: of what ended it, or what it went on after. `quarantined`: datasets that it quarantined;
    `held`: those that were sealed and held back with it; `reasons`: why something did not go through; `notes`: what is
    worth knowing, and in order. `flow`: what the constructs did.
    """

    version: int
    job: str
    run_id: str
    epoch: int
    command: str
    who: str
    began_ms: int
    ended_ms: int
    outcome: RunOutcome
    error_kind: str
    error: str
    phases: tuple[RecordedPhase, ...]
    totals: dict[str, int]
    quarantined: RecordedReasons = RecordedReasons()
    held: RecordedReasons = RecordedReasons()
    reasons: RecordedReasons = RecordedReasons()
    notes: RecordedReasons = RecordedReasons()
    flow: FlowCounts = FlowCounts()


def put_record(store: JobStore, record: RunRecord) -> None:
    """Leaves a run's record, durably. Records of other epochs stay as they are.

    Raises:
        DistcommitError: if it can't be written, or its epoch has one.
    """
    _put(store, record_name(record.epoch), record, record.run_id)


def put_beginning(store: JobStore, beginning: RunBeginning) -> None:
    """Says that a run has begun, durably. Raises as `put_record`."""
    _put(store, record_name(beginning.epoch, BEGUN), beginning, beginning.run_id)


def put_cancel(store: JobStore, request: CancelRequest) -> bool:
    """Asks a run to end; False if somebody has asked before.

    Raises:
        DistcommitError: if it can't be written.
    """
    try:
        _put(store, record_name(request.epoch, CANCEL), request, "")
    except ConflictError:
        return False
    return True


def _put(store: JobStore, name: str, document: msgspec.Struct, run_id: str) -> None:
    fs, folder = store.fs, f"{store.roots.store}/{RUNS}"
    path = f"{folder}/{name}"
    for tries_left in reversed(range(_TRIES)):
        try:
            fs.make_folders(folder)
            if not fs.put_if_absent(path, encode_document(document)):
                raise ConflictError("a run of this epoch has left this before", path=path, run=run_id)
            fs.sync([folder], store.roots.store)
        except OSError as error:
            if tries_left and isinstance(error, FileNotFoundError):
                continue  # a newer run has swept what this one was about to put
            raise storage_error(error, "what is kept of the run can't be written", path=path) from error
        return


def read_record(fs: FileSystem, store_root: str, epoch: int) -> RunRecord | None:
    """What the run of that epoch has left of itself; None if it has left nothing.

    Raises:
        UnknownVersionError, CorruptError: if it can't be read; it stands for itself alone.
    """
    return _read(fs, store_root, record_name(epoch), RunRecord, RECORD_VERSION, "the record of a run")


def read_beginning(fs: FileSystem, store_root: str, epoch: int) -> RunBeginning | None:
    """How the run of that epoch began; None if that is not kept. Raises as `read_record`."""
    name = record_name(epoch, BEGUN)
    return _read(fs, store_root, name, RunBeginning, BEGINNING_VERSION, "the beginning of a run")


def read_cancel(fs: FileSystem, store_root: str, epoch: int) -> CancelRequest | None:
    """Who wants the run of that epoch to end; None if nobody does. One that can't be read counts as one of nobody
    known: whoever put it can have wanted nothing else."""
    name = record_name(epoch, CANCEL)
    try:
        return _read(fs, store_root, name, CancelRequest, CANCEL_VERSION, "the request to end a run")
    except DistcommitError:
        return CancelRequest(CANCEL_VERSION, epoch, "somebody", 0)


def recorded_epochs(fs: FileSystem, store_root: str) -> list[int]:
    """Epochs of runs that have left anything, oldest first. That one is to end is none of it: a rebuild, which has an
    epoch and leaves nothing here, may be told so, too."""
    found = (record_of(entry.name) for entry in fs.list_folder(f"{store_root}/{RUNS}"))
    return sorted({known[0] for known in found if known is not None and known[1] != CANCEL})


def path_of(store_root: str, name: str) -> str:
    """Return where a record of that name is."""
    return f"{store_root}/{RUNS}/{name}"


def _read(
    fs: FileSystem, store_root: str, name: str, kind: type[_Document], version: int, what: str
) -> _Document | None:
    path = path_of(store_root, name)
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return None
    return decode_document(data, kind, version, what, path)
