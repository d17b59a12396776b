"""Every reader of stored bytes by name: sample inputs, and the errors it may raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec
import pyarrow as pa

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import (
    ConfigurationError,
    CorruptError,
    DistcommitError,
    LockHeldError,
    SinkUnavailableError,
    UnknownStepTypeError,
)
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import CommitterContext, SinkCommitter
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.records.log_records import Intent
from distcommit.core.work_units import DatasetPlan, TaskState
from distcommit.engine.driver.task_progress import read_progress
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.object_stores.staged_upload_marker import decode_marker, encode_marker
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.output import tombstone_path
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.protocol.paths.store import (
    BEGUN,
    CANCEL,
    MANIFEST,
    PAUSED,
    READING,
    RUNS,
    SCHEDULE,
    reading_note_name,
    record_name,
    run_name,
)
from distcommit.protocol.record_effects import apply
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.databases.row_loading_committer import as_row
from distcommit.sinks.files.footer import METADATA_KEY, Footer, read_footer, read_records
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.sinks.kafka.client import _row as decode_row
from distcommit.sinks.table_formats.ledger_files import Ledgers
from distcommit.steps.step_registry import load_steps
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.folders.tombstones import Tombstone, read_tombstone
from distcommit.stores.history.run_records import (
    CancelRequest,
    RunBeginning,
    RunRecord,
    read_beginning,
    read_cancel,
    read_record,
)
from distcommit.stores.history.run_table import decode_task_rows, encode_task_rows
from distcommit.stores.logs.segment_format import decode_segment, encode_segment
from distcommit.stores.operator.schedule_requests import ScheduleRequest, read_requests
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.stores.state.plan_and_task_state_encoding import (
    decode_plan,
    decode_task_states,
    encode_plan,
    encode_task_states,
)
from distcommit.stores.state.recorded_fixed_settings import RecordedSettings, read_settings
from distcommit.stores.state.run_plans import read_manifest
from distcommit.stores.state.work_units_being_read import ReadingNote, read_notes
from tests.golden import samples
from tests.simulation.altered_files import encoded
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedClock, SimulatedFileSystem

PATH = "/store/the-file"
"""The path that readers receive, if they take one."""
_ROWS = pa.table({"n": [1, 2, None], "text": ["", "a", None]})
_SEEN = Fold()
apply(1, samples.SEGMENTS["checkpoint"].record, _SEEN)


class WrongValueError(AssertionError):
    """A reader accepted bytes as a value that its type does not allow."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of stored bytes.

    `may_raise`: the errors that it documents for invalid bytes. `names_path`: whether those errors name a path.
    `covers_version`: whether a checksum covers the version too, so that damaged bytes never pass for those of a newer
    version.
    """

    name: str
    samples: tuple[bytes, ...]
    read: Callable[[bytes], object]
    may_raise: tuple[type[DistcommitError], ...] = (CorruptError,)
    names_path: bool = True
    covers_version: bool = False


class SampleSink(CommitterSink):
    """The sink that the samples name. It is never opened, because reading runs no sink code."""

    name = samples.SINK

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        raise NotImplementedError

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        raise NotImplementedError


def read_segment(data: bytes) -> object:
    """Decode a segment and fold it, onto an empty fold and onto a checkpoint."""
    segment = decode_segment(data, PATH)
    apply(1, segment.record, Fold())
    fold = Fold()
    apply(1, _SEEN.checkpoint(), fold)
    apply(2, segment.record, fold)
    fold.pending()
    return segment


def read_sealed(data: bytes) -> object:
    """Decode a segment and the commit steps of its sequences."""
    segment = decode_segment(data, PATH)
    context = StepContext(LocalFileSystem(SimulatedPosix()), "/staging", "/output", SampleSink().committers)
    if isinstance(segment.record, Intent):
        for sequence in segment.record.sequences:
            list(load_steps(sequence.steps, context))
    return segment


def _file_system(path: str, data: bytes) -> FileSystem:
    fs = SimulatedFileSystem(SimulatedPosix())
    fs.make_folders(path.rpartition("/")[0])
    writer = fs.create(path)
    writer.write(data)
    writer.close_file(sync=False)
    return fs


def _read_marker(data: bytes) -> object:
    fs = _file_system("/store/store.json", data)
    store = open_store(fs, Roots("/store", "/staging", "/output"), "job", create=False)
    if store.buckets < 1:
        raise WrongValueError(f"a store of {store.buckets} buckets")
    return store


def _read_owner(data: bytes) -> object:
    return read_owner(_file_system(f"/output/{OWNERSHIP_FOLDER}/owner.json", data), "/output")


def _read_settings(data: bytes) -> object:
    fs = _file_system("/store/settings/000000000001.json", data)
    return _typed(read_settings(JobStore(fs, Roots("/store", "/staging", "/output"), "job", 1)), RecordedSettings)


def _read_record(data: bytes) -> object:
    fs = _file_system(f"/store/{RUNS}/{record_name(7)}", data)
    return _typed(read_record(fs, "/store", 7), RunRecord)


def _read_beginning(data: bytes) -> object:
    fs = _file_system(f"/store/{RUNS}/{record_name(7, BEGUN)}", data)
    return _typed(read_beginning(fs, "/store", 7), RunBeginning)


def _read_cancel(data: bytes) -> object:
    return _typed(
        read_cancel(_file_system(f"/store/{RUNS}/{record_name(7, CANCEL)}", data), "/store", 7), CancelRequest
    )


def _read_note(data: bytes) -> object:
    path = f"/store/{READING}/{run_name('run')}/{reading_note_name('0' * 32, 1)}"
    notes = [_typed(note, ReadingNote) for note in read_notes(_file_system(path, data), "/store", "run").values()]
    return notes[0] if notes else samples.READING_NOTE


def _read_pause(data: bytes) -> object:
    return _typed(read_requests(_file_system(f"/store/{SCHEDULE}/{PAUSED}", data), "/store").paused, ScheduleRequest)


_STONES = (encode_document(samples.TOMBSTONE), encode_document(samples.REPLACEMENT))


def _read_tombstone(data: bytes) -> object:
    stone = samples.TOMBSTONE
    below = tombstone_path(folder_of(stone.dataset_urn), stone.epoch, stone.work_unit_id, stone.attempt)
    return _typed(read_tombstone(_file_system(f"/output/{below}", data), f"/output/{below}"), Tombstone)


def _read_plan(data: bytes) -> object:
    return _typed(decode_plan(data, PATH), list[DatasetPlan])


def _read_task_states(data: bytes) -> object:
    return _typed(decode_task_states(data, PATH), list[TaskState])


def _typed(value: object, kind: type) -> object:
    """Return the value if it matches its type. Constructors do not check this."""
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except msgspec.ValidationError as error:
        raise WrongValueError(str(error)) from error
    return value


def _read_manifest(data: bytes) -> object:
    return read_manifest(_file_system(f"/store/plans/run={samples.RUN_ID}/{MANIFEST}", data), "/store", samples.RUN_ID)


def _read_upload(data: bytes) -> object:
    return decode_marker(data, PATH)


def _read_lock(data: bytes) -> object:
    with JobLock(_file_system("/store/lock/000000000001.json", data), "/store", "other", 30, SimulatedClock()):
        return None


def _read_progress(data: bytes) -> object:
    return read_progress(_file_system("/progress/ingest-00000-aabb-00000001", data), "/progress")


def _read_footer(data: bytes) -> object:
    return Footer.from_metadata({METADATA_KEY: data.decode(errors="surrogateescape")})


def _read_file(path: str, data: bytes) -> object:
    return read_footer(_file_system(path, data), path), read_records(_file_system(path, data), path)


def _read_offsets(data: bytes) -> object:
    return OffsetSets.from_text(data.decode(errors="surrogateescape"))


def _ledger_part(kind: type[msgspec.Struct]) -> Callable[[bytes], object]:
    ledgers = Ledgers(SimulatedFileSystem(SimulatedPosix()), "/output", samples.STORE_ID)
    return lambda data: ledgers.decoded(data, kind, path=PATH)


def _read_kafka_row(data: bytes) -> object:
    return decode_row(b'["store", "orders", "main"]', data, "ledger")


def _read_covered(data: bytes) -> object:
    row = samples.ledger_row()
    return as_row((row.dataset_urn, row.branch, row.epoch, row.base, row.revoked, row.commit_id, data))


_LEDGERS = (
    *(
        Reader(
            name.replace("-", " "),
            (msgspec.json.encode(part),),
            _read_kafka_row if isinstance(part, LedgerRow) else _ledger_part(type(part)),
            names_path=False,
        )
        for name, part in samples.ledger_parts().items()
    ),
    Reader("database covered", (msgspec.json.encode(samples.covered()),), _read_covered, names_path=False),
)
_FILES = tuple(
    Reader(
        f"{form} file",
        (encoded(_ROWS, form, samples.footer().to_metadata()),),
        partial(_read_file, f"/output/f.{form}"),
    )
    for form in ("jsonl.gz", "csv.gz", "orc")
)
READERS = (
    tuple(
        Reader(*fields)
        for fields in (
            (
                "segment",
                tuple(map(encode_segment, samples.SEGMENTS.values())),
                read_segment,
                (CorruptError,),
                True,
                True,
            ),
            (
                "steps",
                tuple(encode_segment(samples.SEGMENTS[name]) for name in ("intent", "intent-sink", "intent-rename")),
                read_sealed,
                (CorruptError, UnknownStepTypeError, ConfigurationError, SinkUnavailableError),
                False,
            ),
            ("plan", (encode_plan(samples.PLAN),), _read_plan),
            (
                "task states",
                (encode_task_states(samples.TASK_STATES),),
                _read_task_states,
            ),
            ("manifest", (encode_document(samples.MANIFEST),), _read_manifest, (CorruptError,), True, True),
            (
                "store marker",
                (encode_document(samples.MARKER),),
                _read_marker,
                (CorruptError, ConfigurationError),
                True,
                True,
            ),
            ("upload marker", (encode_marker(samples.UPLOAD),), _read_upload),
            ("owner", (encode_document(samples.OWNER),), _read_owner, (CorruptError,), True, True),
            ("settings", (encode_document(samples.RECORDED_SETTINGS),), _read_settings, (CorruptError,), True, True),
            ("run record", (encode_document(samples.RUN_RECORD),), _read_record, (CorruptError,), True, True),
            ("run beginning", (encode_document(samples.RUN_BEGINNING),), _read_beginning, (CorruptError,), True, True),
            ("cancel request", (encode_document(samples.CANCEL_REQUEST),), _read_cancel, (), False),
            ("reading note", (encode_document(samples.READING_NOTE),), _read_note, (), False),
            ("pause", (encode_document(samples.SCHEDULE_REQUEST),), _read_pause, (), False),
            (
                "run table",
                (encode_task_rows(samples.TASK_ROWS),),
                lambda data: decode_task_rows(data, PATH),
                (CorruptError,),
                False,
            ),
            (
                "tombstone",
                _STONES,
                _read_tombstone,
                (CorruptError,),
                True,
                True,
            ),
            ("lock", (msgspec.json.encode(samples.LOCK),), _read_lock, (LockHeldError,), False),
            (
                "progress",
                (msgspec.json.encode(samples.PROGRESS),),
                _read_progress,
                (),
                False,
            ),
            (
                "footer",
                tuple(
                    footer.to_metadata()[METADATA_KEY].encode()
                    for footer in (samples.footer(), samples.footer_of_replacing())
                ),
                _read_footer,
                (CorruptError,),
                False,
            ),
            ("offsets", (samples.offsets().to_text().encode(),), _read_offsets, (CorruptError,), False),
        )
    )
    + _LEDGERS
    + _FILES
)
