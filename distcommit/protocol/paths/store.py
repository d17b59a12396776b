"""Names below the store."""

from __future__ import annotations

import re
from functools import lru_cache

from distcommit.protocol.paths.shared_names import bucket_name, epoch_name

SEGMENT_SUFFIX = ".seg"

MANIFEST = "_manifest.json"
"""File that makes a run's plan valid. Readers of tables skip names that start with an underscore."""

INGEST_ENDED = "_INGEST_ENDED"
"""Empty file beside a run's task states: the run will report no more task states."""

STORE_MARKER = "store.json"
"""File that makes a folder a job's store; written last when the store is created."""

SETTINGS = "settings"
"""Folder in the store of the fixed settings, in numbered documents."""

JOB_LOG = "log/job"
"""Folder in the store of the job log."""

PLANS, TASK_STATES, PROGRESS = "plans", "task_states", "progress"
"""Folders in the store with a folder for each run: its plans, its task states and its progress."""

SET_ASIDE = "set_aside"
"""Folder in the store of files that a rebuild or repair removed from the output and from logs."""

GENERATIONS = "log/generations"
"""Folder in the store of the bucket logs of each generation but the first, whose logs are beside it."""

RUNS = "runs"
"""Folder in the store of run records."""

BEGUN, CANCEL = "begun", "cancel"
"""Other files of a run beside its record: the record of its start, and a request to cancel it."""

SCHEDULE = "schedule"
"""Folder in the store of operators' requests to services that run the job."""

PAUSED = "paused.json"
"""File in that folder: scheduled runs are suspended."""

EXPIRY_REQUESTS = "expiry_requests"
"""Folder in the store of expiry cutoffs, in numbered documents. The newest counts."""

RUN_TABLES = "run_tables"
"""Folder in the store of each run's table of tasks and datasets."""

READING = "reading"
"""Folder in the store with a folder for each run in which a worker may die: the work units that tasks are reading."""

LOCK = "lock"
"""Folder in the store of the job lock's holder, and below it of runs without the lock."""

SCHEMAS = "schemas"
"""Folder in the store of inferred schemas."""

SNAPSHOTS = "snapshots"
"""Folder in the store of snapshots."""

SNAPSHOT_DELTAS = f"{SNAPSHOTS}/deltas"
"""Folder of snapshot deltas, by bucket."""

_NUMBERED = re.compile(r"(\d{12})\.json")
_RUN_TABLE = re.compile(r"([a-z]+)-\d{5,}-[0-9a-f]{32}\.parquet")
_RECORD = re.compile(rf"(\d{{10,}})(?:-({BEGUN}|{CANCEL}))?\.json")
_CUT = re.compile(r"(\d{10,})-([12])\.json")
_PIECE = re.compile(r"(\d{10,})-\d{5,}-\d{12,}-[0-9a-f]{16}\.json")
_TRIGGER = re.compile(r"[0-9a-f]{32}-trigger\.json")
_READING_NOTE = re.compile(r"([0-9a-f]{32})-(\d{8})\.json")
_PARTITION = re.compile(r"partition=(\d{5,})-of-(\d{5,})")


def numbered_name(number: int) -> str:
    """Return the file name of a numbered document. The document with the highest number counts."""
    return f"{number:012d}.json"


def number_of(name: str) -> int | None:
    """Return the number of a numbered document, None for any other name."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else None


def partition_name(partition: int, partitions: int) -> str:
    """Return the folder name of a partition's files in a run. Bucket b belongs to partition b mod `partitions`."""
    return f"partition={partition:05d}-of-{partitions:05d}"


def partition_of(name: str) -> tuple[int, int] | None:
    """Return the partition and the number of partitions in the folder name, None for any other name."""
    match = _PARTITION.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def holds_bucket(name: str, bucket: int) -> bool:
    """Return whether a folder name is that of the partition that owns the bucket."""
    partition = partition_of(name)
    return partition is not None and bucket % partition[1] == partition[0]


def log_folder(generation: int, bucket: int) -> str:
    """Return the folder of a bucket's log, relative to the store."""
    return f"{GENERATIONS}/{generation:05d}/{bucket_name(bucket)}" if generation else f"log/{bucket_name(bucket)}"


_RUN = "run="


def run_name(run_id: str) -> str:
    """Return the folder name of a run, below a folder of the store."""
    return f"{_RUN}{run_id}"


def is_run_name(name: str) -> bool:
    """Return whether a folder name is that of a run."""
    return name.startswith(_RUN)


def run_id_of(name: str) -> str:
    return name.removeprefix(_RUN)


def snapshot_manifest_name(epoch: int, phase: int) -> str:
    return f"{epoch_name(epoch)}-{phase}.json"


def snapshot_manifest_of(name: str) -> tuple[int, int] | None:
    """Return the epoch and the phase of a snapshot manifest's name, None for any other name."""
    match = _CUT.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def snapshot_delta_name(epoch: int, bucket: int, number: int, checksum: str) -> str:
    """Return the file name of a snapshot delta.

    Args:
        epoch: the run that wrote it.
        number: the newest segment of the bucket's log.
        checksum: the checksum of the content, 16 hexadecimal digits.
    """
    return f"{epoch_name(epoch)}-{bucket:05d}-{number:012d}-{checksum}.json"


def snapshot_delta_epoch(name: str) -> int | None:
    """Return the epoch of a snapshot delta's name, None for any other name."""
    match = _PIECE.fullmatch(name)
    return int(match[1]) if match else None


def record_name(epoch: int, subject: str = "") -> str:
    """Return the file name of a run's record or, with a `subject`, of another file of the run."""
    return f"{epoch_name(epoch)}{f'-{subject}' if subject else ''}.json"


def record_of(name: str) -> tuple[int, str] | None:
    """Return the epoch and kind of a run's file name, None for any other name."""
    match = _RECORD.fullmatch(name)
    record = (int(match[1]), match[2] or "") if match and name.isascii() else None
    return record if record and record_name(*record) == name else None


def trigger_name(request_id: str) -> str:
    """Return the file name of a request to run the job once. The id is 32 hexadecimal digits."""
    return f"{request_id}-trigger.json"


def is_trigger(name: str) -> bool:
    """Return whether a file name is that of a request to run the job once."""
    return _TRIGGER.fullmatch(name) is not None


def set_aside_folder(epoch: int) -> str:
    """Return the folder of files that the rebuild of `epoch` removed from the output and from logs.

    The path is relative to the store.
    """
    return f"{SET_ASIDE}/epoch={epoch_name(epoch)}"


def set_aside_root(store_root: str) -> str:
    """Return the folder of all files that were set aside."""
    return f"{store_root}/{SET_ASIDE}"


def set_aside_by(run_id: str) -> str:
    """Return the folder of damaged files that an operator action set aside, relative to the store."""
    return f"{SET_ASIDE}/{run_name(run_id)}"


def table_file_name(start: str, checksum: str) -> str:
    """Return the name of a table file of a plan or of task states, ending in the checksum of its bytes."""
    return f"{start}{_checked(checksum)}"


def has_checksum(path: str, checksum: str) -> bool:
    """Return whether a table file's name contains that checksum."""
    return path.endswith(_checked(checksum))


def _checked(checksum: str) -> str:
    return f"-{checksum}.parquet"


def task_states_start(writer: str, number: int) -> str:
    """Return the start of the name of a file of task states, written by an attempt at a Spark task."""
    return f"{writer}-{number:06d}"


def is_table(name: str) -> bool:
    """Return whether a file name is that of a complete table file."""
    return name.endswith(".parquet") and not name.startswith(".")


def writer_of(path: str) -> str:
    """Return the writer of a file of task states."""
    return path.rpartition("/")[2].partition("-")[0]


def run_table_name(phase: str, task: int, writer: str) -> str:
    """Return the name of the file of an attempt at a phase's task in the run's table. The writer is unique, 32
    hexadecimal digits."""
    return f"{phase}-{task:05d}-{writer}.parquet"


def run_table_phase(name: str) -> str:
    """Return the phase in the file name of a run's table, empty for any other name."""
    match = _RUN_TABLE.fullmatch(name)
    return match[1] if match else ""


def progress_name(job: str, task: int, writer: str, number: int, began_ms: int = 0) -> str:
    """Return the file name of a task's progress in a Spark job. The highest name counts: the newest file of the attempt
    that began last.
    """
    return f"{job}-{task:05d}-{began_ms:013d}{writer}-{number:08d}"


def reading_note_name(writer: str, number: int) -> str:
    """Return the name of the marker file of the work unit that an attempt at a task is reading."""
    return f"{writer}-{number:08d}.json"


def reading_note_of(name: str) -> tuple[str, int] | None:
    """Return the writer and the number in a name of `reading_note_name`; None for any other name."""
    match = _READING_NOTE.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def progress_task(name: str) -> str:
    """Return the start of all progress file names of a task."""
    return name.rsplit("-", 2)[0]


def segment_name(number: int) -> str:
    """Return the file name of a log segment: the number alone, so that only one writer can own a number."""
    return f"{number:012d}{SEGMENT_SUFFIX}"


@lru_cache(4096)  # a log is listed before and after each fold
def segment_number(name: str) -> int | None:
    """Return the number of a segment's file name, None for any other name."""
    digits = name.removesuffix(SEGMENT_SUFFIX)
    return int(digits) if name.endswith(SEGMENT_SUFFIX) and len(digits) == 12 and digits.isdecimal() else None
