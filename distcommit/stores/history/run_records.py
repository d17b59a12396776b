"""Records of runs, for operators and monitoring.

<store>/runs/<epoch>-begun.json     put when the run has its epoch
<store>/runs/<epoch>-cancel.json    a request to end the run
<store>/runs/<epoch>.json           put when the run has ended

Publishing does not depend on these records. A killed run leaves only the first. An unreadable record does not affect
other records.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import ConflictError, DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reasons
from distcommit.protocol.paths.store import BEGUN, CANCEL, RUNS, record_name, record_of
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

RECORD_VERSION = 1
BEGINNING_VERSION = CANCEL_VERSION = 1
NOT_PLANNED = "not planned"
"""Reason recorded for a dataset that the source could not plan."""
_TRIES = 3
_Document = TypeVar("_Document", bound=msgspec.Struct)


class RunFacts(msgspec.Struct, frozen=True):
    """Facts known before a run starts."""

    config: dict[str, Any] = {}
    """The job file, without secrets."""
    versions: dict[str, str] = {}
    """Versions of software that the run uses, by name."""
    host: str = ""
    """Host of the driver."""
    pid: int = 0
    """Process id of the driver."""
    job_file: str = ""
    """Path of the job file on that host."""
    is_locked: bool = True
    """Whether the run holds the job lock. If not, it keeps a sign of life in its own folder."""
    retained_runs: int = 0
    """Number of older runs whose records are kept."""
    retained_tables: int = 0
    """Number of older runs whose tables are kept."""
    settings_digest: str | msgspec.UnsetType = msgspec.UNSET
    """Digest of all settings, secrets and environment variables, if the run can resume a killed one."""


class RunBeginning(msgspec.Struct, frozen=True):
    version: int
    """Format version."""
    job: str
    """Name of the job."""
    run_id: str
    """The run's id."""
    epoch: int
    """The run's epoch."""
    command: str
    """That started the run."""
    requested_by: str
    """User or service."""
    began_ms: int
    """Start of the run, in milliseconds since 1970."""
    facts: RunFacts
    """Facts that were known before the run started."""


class CancelRequest(msgspec.Struct, frozen=True):
    """A request to end the run of an epoch."""

    version: int
    """Format version."""
    epoch: int
    """Epoch of the run."""
    requested_by: str
    """User or service."""
    at_ms: int
    """Time of the request, in milliseconds since 1970."""


class RecordedPhase(msgspec.Struct, frozen=True):
    name: str
    """Name of the phase."""
    seconds: float
    """Duration of the phase."""
    completed: bool
    """Whether the phase ended without an error. If not, the counts cover only earlier reports."""
    counts: RunCounts
    """Counts of this phase alone."""


class RunRecord(msgspec.Struct, frozen=True):
    """An ended run, with times in milliseconds since 1970."""

    version: int
    """Format version."""
    job: str
    """Name of the job."""
    run_id: str
    """The run's id."""
    epoch: int
    """The run's epoch."""
    command: str
    """That started the run."""
    requested_by: str
    """User or service."""
    began_ms: int
    """Start of the run."""
    ended_ms: int
    """End of the run."""
    outcome: RunOutcome
    """Outcome of the run."""
    error_kind: str
    """Id of the error, or class of a library's error; empty if there was no error."""
    error: str
    """Text of the error that ended the run, or of a failed ingest job."""
    phases: tuple[RecordedPhase, ...]
    """Phases of the run, in order."""
    totals: RunCounts
    """Counts of all phases."""
    quarantined: Reasons = Reasons()
    """Datasets that the run quarantined."""
    held: Reasons = Reasons()
    """Datasets that were ready but not published, because the job publishes all or none."""
    reasons: Reasons = Reasons()
    """Why datasets or buckets were not completed."""
    notes: Reasons = Reasons()
    """Facts that are not failures."""


def put_record(store: JobStore, record: RunRecord) -> None:
    """Put the record of an ended run, durably.

    Raises:
        DistcommitError: if the record cannot be written, or the epoch has one already.
    """
    _put(store, record_name(record.epoch), record, record.run_id)


def put_beginning(store: JobStore, beginning: RunBeginning) -> None:
    """Put the record of a run's start, durably. Raise DistcommitError if that fails or the record exists."""
    _put(store, record_name(beginning.epoch, BEGUN), beginning, beginning.run_id)


def put_cancel(store: JobStore, request: CancelRequest) -> bool:
    """Put a request to end a run; return False if the run has a request already.

    Raises:
        DistcommitError: if the request cannot be written.
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
                raise ConflictError("a run of this epoch has this record already", path=path, run=run_id)
            fs.sync([folder], store.roots.store)
        except OSError as error:
            if tries_left and isinstance(error, FileNotFoundError):
                continue  # a newer run has swept the temporary file
            raise storage_error(error, "the record of the run cannot be written", path=path) from error
        return


def read_record(fs: FileSystem, store_root: str, epoch: int) -> RunRecord | None:
    """Return the record of an ended run, or None. Raise UnknownVersionError or CorruptError."""
    return _read(fs, store_root, record_name(epoch), RunRecord, RECORD_VERSION, "the record of a run")


def read_beginning(fs: FileSystem, store_root: str, epoch: int) -> RunBeginning | None:
    """Return the record of a run's start, or None. Raise UnknownVersionError or CorruptError."""
    name = record_name(epoch, BEGUN)
    return _read(fs, store_root, name, RunBeginning, BEGINNING_VERSION, "the record of a run's begin")


def read_cancel(fs: FileSystem, store_root: str, epoch: int) -> CancelRequest | None:
    """Return the request to end a run, or None.

    An unreadable request counts as the request of an unknown user.
    """
    name = record_name(epoch, CANCEL)
    try:
        return _read(fs, store_root, name, CancelRequest, CANCEL_VERSION, "the request to end a run")
    except DistcommitError:
        return CancelRequest(CANCEL_VERSION, epoch, "somebody", 0)


def recorded_epochs(fs: FileSystem, store_root: str) -> list[int]:
    """Return the epochs with records, oldest first.

    A request alone does not count, because a rebuild has an epoch but no records.
    """
    records = (record_of(entry.name) for entry in fs.list_folder(f"{store_root}/{RUNS}"))
    return sorted(
        {epoch_and_kind[0] for epoch_and_kind in records if epoch_and_kind is not None and epoch_and_kind[1] != CANCEL}
    )


def record_path(store_root: str, name: str) -> str:
    return f"{store_root}/{RUNS}/{name}"


def _read(
    fs: FileSystem, store_root: str, name: str, kind: type[_Document], version: int, subject: str
) -> _Document | None:
    path = record_path(store_root, name)
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return None
    return decode_document(data, kind, version, subject, path)
