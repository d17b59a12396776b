"""Records of runs, for operators and monitoring.

<store>/runs/<epoch>-begun.json     put when the run has its epoch
<store>/runs/<epoch>-cancel.json    a request to end the run
<store>/runs/<epoch>.json           put when the run has ended

Publishing depends on none of them. A killed run leaves the first alone; an unreadable record affects no other.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from distcommit.core.errors import ConflictError, DistcommitError
from distcommit.core.ports import FileSystem
from distcommit.core.records.flow_counts import FlowCounts
from distcommit.core.run_outcome import RunOutcome
from distcommit.core.storage_errors import storage_error
from distcommit.protocol.paths.store import BEGUN, CANCEL, RUNS, record_name, record_of
from distcommit.stores.state.documents import decode_document, encode_document
from distcommit.stores.state.job_store import JobStore

RECORD_VERSION = 1
BEGINNING_VERSION = CANCEL_VERSION = 1
MAX_ENTRIES = 100
"""Maximum number of entries of a kind in a record; the others are counted."""
NOT_PLANNED = "not planned"
"""Kind of the reason of a dataset that the source could not plan."""
_TRIES = 3
_Document = TypeVar("_Document", bound=msgspec.Struct)


class RunFacts(msgspec.Struct, frozen=True):
    """Facts about a run that are known before it begins.

    Attributes:
        config: the job file, without secrets.
        versions: versions of software that the run uses, by name.
        host: host of the driver.
        pid: process id of the driver.
        job_file: path of the job file on that host.
        locked: whether the run holds the job lock; else it gives a sign of life in its own folder.
        kept_runs: number of older runs whose records are kept.
        kept_tables: number of older runs whose tables are kept.
    """

    config: dict[str, Any] = {}
    versions: dict[str, str] = {}
    host: str = ""
    pid: int = 0
    job_file: str = ""
    locked: bool = True
    kept_runs: int = 0
    kept_tables: int = 0


class RunBeginning(msgspec.Struct, frozen=True):
    """The record of a run's begin.

    Attributes:
        version: format version.
        job: name of the job.
        run_id: the run's id.
        epoch: the run's epoch.
        command: the command that started the run.
        who: user or service that gave it.
        began_ms: time of its begin, in milliseconds since 1970.
        facts: facts known before it began.
    """

    version: int
    job: str
    run_id: str
    epoch: int
    command: str
    who: str
    began_ms: int
    facts: RunFacts


class CancelRequest(msgspec.Struct, frozen=True):
    """A request to end the run of an epoch.

    Attributes:
        version: format version.
        epoch: epoch of the run.
        who: who asked.
        at_ms: time of the request, in milliseconds since 1970.
    """

    version: int
    epoch: int
    who: str
    at_ms: int


class RecordedReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded reason or note.

    Attributes:
        subject: the dataset, bucket or partition.
        kind: kind of the reason.
        text: the reason.
        remedy: words of the command that resolves it, if the source has named one.
    """

    subject: str
    kind: str
    text: str
    remedy: tuple[str, ...] = ()


class RecordedReasons(msgspec.Struct, frozen=True):
    """The first reasons, and the number of those left out."""

    kept: tuple[RecordedReason, ...] = ()
    left_out: int = 0


class RecordedPhase(msgspec.Struct, frozen=True):
    """A phase of a run.

    Attributes:
        name: name of the phase.
        seconds: its duration.
        completed: False if an error ended it; the counts then cover only the reports received before.
        counts: its counts by name.
    """

    name: str
    seconds: float
    completed: bool
    counts: dict[str, int]


class RunRecord(msgspec.Struct, frozen=True):
    """The record of an ended run. Times are milliseconds since 1970.

    Attributes:
        version: format version.
        job: name of the job.
        run_id: the run's id.
        epoch: the run's epoch.
        command: the command that started the run.
        who: user or service that gave it.
        began_ms: its begin.
        ended_ms: its end.
        outcome: its outcome.
        error_kind: id of the error that ended it or a failed ingest job; of a library's error its class name.
        error: text of that error.
        phases: its phases.
        totals: counts over all phases, by name.
        quarantined: datasets that it quarantined.
        held: datasets that were ready, and held back because the job publishes all datasets or none.
        reasons: why datasets or buckets were not completed.
        notes: facts worth reporting that are no failures.
        flow: counts of the constructs.
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
    """Put the record of an ended run, durably. Records of other epochs are not changed.

    Raises:
        DistcommitError: if it cannot be written, or the epoch has a record.
    """
    _put(store, record_name(record.epoch), record, record.run_id)


def put_beginning(store: JobStore, beginning: RunBeginning) -> None:
    """Put the record of a run's begin, durably. Raises as `put_record`."""
    _put(store, record_name(beginning.epoch, BEGUN), beginning, beginning.run_id)


def put_cancel(store: JobStore, request: CancelRequest) -> bool:
    """Put a request to end a run. Return False if there is one already.

    Raises:
        DistcommitError: if it cannot be written.
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
    """Return the record of the run of that epoch; None if there is none.

    Raises:
        UnknownVersionError, CorruptError: if it cannot be read. Other records are not affected.
    """
    return _read(fs, store_root, record_name(epoch), RunRecord, RECORD_VERSION, "the record of a run")


def read_beginning(fs: FileSystem, store_root: str, epoch: int) -> RunBeginning | None:
    """Return the record of that run's begin; None if there is none. Raises as `read_record`."""
    name = record_name(epoch, BEGUN)
    return _read(fs, store_root, name, RunBeginning, BEGINNING_VERSION, "the record of a run's begin")


def read_cancel(fs: FileSystem, store_root: str, epoch: int) -> CancelRequest | None:
    """Return the request to end the run of that epoch; None if there is none. An unreadable request is valid, of
    unknown origin."""
    name = record_name(epoch, CANCEL)
    try:
        return _read(fs, store_root, name, CancelRequest, CANCEL_VERSION, "the request to end a run")
    except DistcommitError:
        return CancelRequest(CANCEL_VERSION, epoch, "somebody", 0)


def recorded_epochs(fs: FileSystem, store_root: str) -> list[int]:
    """Return the epochs of runs with records, oldest first. A request to end a run does not count: it may address a
    rebuild, which has an epoch and no records."""
    records = (record_of(entry.name) for entry in fs.list_folder(f"{store_root}/{RUNS}"))
    return sorted(
        {epoch_and_kind[0] for epoch_and_kind in records if epoch_and_kind is not None and epoch_and_kind[1] != CANCEL}
    )


def record_path(store_root: str, name: str) -> str:
    """Return the path of a record."""
    return f"{store_root}/{RUNS}/{name}"


def _read(
    fs: FileSystem, store_root: str, name: str, kind: type[_Document], version: int, what: str
) -> _Document | None:
    path = record_path(store_root, name)
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return None
    return decode_document(data, kind, version, what, path)
