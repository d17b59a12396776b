"""What each run leaves of itself when it has ended, for people and what watches for them.

<store>/runs/<epoch>.json

Nothing depends on it: a run that was killed leaves none, and one that can't be read stands for itself alone.
"""

from __future__ import annotations

import msgspec

from distcommit.model.errors import ConflictError, storage_error
from distcommit.model.flow_counts import FlowCounts
from distcommit.model.ports import FileSystem
from distcommit.model.run_outcome import RunOutcome
from distcommit.protocol.paths import RUNS, record_name
from distcommit.stores.documents import decode_document, encode_document
from distcommit.stores.job_store import JobStore

RECORD_VERSION = 1
KEPT = 100
"""How many of a kind a record names; the rest are counted."""
_TRIES = 3


class RecordedReason(msgspec.Struct, frozen=True):
    """Why a dataset (or a bucket) did not go through, or what is worth knowing of it."""

    subject: str
    kind: str
    text: str


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
    fs, folder = store.fs, f"{store.roots.store}/{RUNS}"
    path = f"{folder}/{record_name(record.epoch)}"
    for tries_left in reversed(range(_TRIES)):
        try:
            fs.make_folders(folder)
            if not fs.put_if_absent(path, encode_document(record)):
                raise ConflictError("a run of this epoch has left a record before", path=path, run=record.run_id)
            fs.sync([folder], store.roots.store)
        except OSError as error:
            if tries_left and isinstance(error, FileNotFoundError):
                continue  # a newer run has swept what this one was about to put
            raise storage_error(error, "the record of the run can't be written", path=path) from error
        return


def read_record(fs: FileSystem, store_root: str, epoch: int) -> RunRecord | None:
    """What the run of that epoch has left of itself; None if it has left nothing.

    Raises:
        UnknownVersionError, CorruptError: if it can't be read; it stands for itself alone.
    """
    path = f"{store_root}/{RUNS}/{record_name(epoch)}"
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return None
    return decode_document(data, RunRecord, RECORD_VERSION, "the record of a run", path)
