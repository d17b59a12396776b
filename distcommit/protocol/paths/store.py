"""Names below the store."""

from __future__ import annotations

import re
from functools import lru_cache

from distcommit.protocol.paths.shared_names import bucket_name, epoch_name

SEGMENT_SUFFIX = ".seg"

MANIFEST = "_manifest.json"
"""File that makes a run's plan valid. Readers of tables skip names with a leading underscore."""

INGEST_ENDED = "_INGEST_ENDED"
"""Empty file that shows that the run's task states are complete."""

STORE_MARKER = "store.json"
"""File that makes a folder a store; written last."""

SETTINGS = "settings"
"""Folder of numbered documents with fixed settings."""

JOB_LOG = "log/job"

PLANS, TASK_STATES, PROGRESS = "plans", "task_states", "progress"
"""Folders in the store with a folder for each run: its plans, its task states and its progress."""

SET_ASIDE = "set_aside"
"""Folder of files that a rebuild or repair has set aside."""

GENERATIONS = "log/generations"
"""Folder of bucket logs of all generations but the first, whose logs are beside this folder."""

RUNS = "runs"
"""Folder of run records."""

BEGUN, CANCEL = "begun", "cancel"
"""Kinds of files beside a run's record: its start, and a request to cancel it."""

SCHEDULE = "schedule"
"""Folder of requests to services."""

PAUSED = "paused.json"
"""File that suspends scheduled runs."""

EXPIRY_REQUESTS = "expiry_requests"
"""Folder of numbered expiry requests, of which the newest counts."""

RUN_TABLES = "run_tables"
"""Folder of run tables, with rows on tasks and datasets."""

READING = "reading"
"""Folder of notes on work units being read, by run. Tasks write them once a worker has died."""

LOCK = "lock"
"""Folder of the job lock, with a folder for each run without the lock."""

SCHEMAS = "schemas"
"""Folder of inferred schemas."""

SNAPSHOTS = "snapshots"

SNAPSHOT_DELTAS = f"{SNAPSHOTS}/deltas"

_NUMBERED = re.compile(r"(\d{12})\.json")
_RUN_TABLE = re.compile(r"([a-z]+)-\d{5,}-[0-9a-f]{32}\.parquet")
_RECORD = re.compile(rf"(\d{{10,}})(?:-({BEGUN}|{CANCEL}))?\.json")
_CUT = re.compile(r"(\d{10,})-([12])\.json")
_PIECE = re.compile(r"(\d{10,})-\d{5,}-\d{12,}-[0-9a-f]{16}\.json")
_TRIGGER = re.compile(r"[0-9a-f]{32}-trigger\.json")
_READING_NOTE = re.compile(r"([0-9a-f]{32})-(\d{8})\.json")
_PARTITION = re.compile(r"partition=(\d{5,})-of-(\d{5,})")


def numbered_name(number: int) -> str:
    """Return the name of a numbered document. The document with the highest number counts."""
    return f"{number:012d}.json"


def number_of(name: str) -> int | None:
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else None


def partition_name(partition: int, partitions: int) -> str:
    """Return the folder of a partition, which owns each bucket b with b mod `partitions` = `partition`."""
    return f"partition={partition:05d}-of-{partitions:05d}"


def partition_of(name: str) -> tuple[int, int] | None:
    match = _PARTITION.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def holds_bucket(name: str, bucket: int) -> bool:
    partition = partition_of(name)
    return partition is not None and bucket % partition[1] == partition[0]


def log_folder(generation: int, bucket: int) -> str:
    return f"{GENERATIONS}/{generation:05d}/{bucket_name(bucket)}" if generation else f"log/{bucket_name(bucket)}"


_RUN = "run="


def run_name(run_id: str) -> str:
    return f"{_RUN}{run_id}"


def is_run_name(name: str) -> bool:
    return name.startswith(_RUN)


def run_id_of(name: str) -> str:
    return name.removeprefix(_RUN)


def snapshot_manifest_name(epoch: int, phase: int) -> str:
    return f"{epoch_name(epoch)}-{phase}.json"


def snapshot_manifest_of(name: str) -> tuple[int, int] | None:
    match = _CUT.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def snapshot_delta_name(epoch: int, bucket: int, number: int, checksum: str) -> str:
    """Return the file name of a snapshot delta.

    Args:
        epoch: epoch of the run that wrote the delta.
        number: number of the newest segment of the bucket's log.
        checksum: the checksum of the content, 16 hexadecimal digits.
    """
    return f"{epoch_name(epoch)}-{bucket:05d}-{number:012d}-{checksum}.json"


def snapshot_delta_epoch(name: str) -> int | None:
    match = _PIECE.fullmatch(name)
    return int(match[1]) if match else None


def record_name(epoch: int, subject: str = "") -> str:
    """Return the name of a run's record; with `subject` (BEGUN or CANCEL), of the file beside it."""
    return f"{epoch_name(epoch)}{f'-{subject}' if subject else ''}.json"


def record_of(name: str) -> tuple[int, str] | None:
    match = _RECORD.fullmatch(name)
    record = (int(match[1]), match[2] or "") if match and name.isascii() else None
    return record if record and record_name(*record) == name else None


def trigger_name(request_id: str) -> str:
    return f"{request_id}-trigger.json"


def is_trigger(name: str) -> bool:
    return _TRIGGER.fullmatch(name) is not None


def set_aside_folder(epoch: int) -> str:
    return f"{SET_ASIDE}/epoch={epoch_name(epoch)}"


def set_aside_root(store_root: str) -> str:
    return f"{store_root}/{SET_ASIDE}"


def set_aside_by(run_id: str) -> str:
    return f"{SET_ASIDE}/{run_name(run_id)}"


def table_file_name(start: str, checksum: str) -> str:
    return f"{start}{_checked(checksum)}"


def has_checksum(path: str, checksum: str) -> bool:
    return path.endswith(_checked(checksum))


def _checked(checksum: str) -> str:
    return f"-{checksum}.parquet"


def task_states_start(writer: str, number: int) -> str:
    return f"{writer}-{number:06d}"


def is_table(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(".")


def writer_of(path: str) -> str:
    return path.rpartition("/")[2].partition("-")[0]


def run_table_name(phase: str, task: int, writer: str) -> str:
    return f"{phase}-{task:05d}-{writer}.parquet"


def run_table_phase(name: str) -> str:
    match = _RUN_TABLE.fullmatch(name)
    return match[1] if match else ""


def progress_name(job: str, task: int, writer: str, number: int, began_ms: int = 0) -> str:
    """Return the name of a progress file. Of a task, the highest name counts: the newest of the last attempt."""
    return f"{job}-{task:05d}-{began_ms:013d}{writer}-{number:08d}"


def reading_note_name(writer: str, number: int) -> str:
    return f"{writer}-{number:08d}.json"


def reading_note_of(name: str) -> tuple[str, int] | None:
    match = _READING_NOTE.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def progress_task(name: str) -> str:
    return name.rsplit("-", 2)[0]


def segment_name(number: int) -> str:
    """Return a segment's name: the number alone, so that only one writer can own it."""
    return f"{number:012d}{SEGMENT_SUFFIX}"


@lru_cache(4096)  # a log is listed before and after each fold
def segment_number(name: str) -> int | None:
    digits = name.removesuffix(SEGMENT_SUFFIX)
    return int(digits) if name.endswith(SEGMENT_SUFFIX) and len(digits) == 12 and digits.isdecimal() else None
