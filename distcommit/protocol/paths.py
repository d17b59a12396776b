"""Names below the store, the staging root and the output root."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from distcommit.model.errors import ConfigurationError
from distcommit.model.urn import folder_of
from distcommit.model.work import MAIN_BRANCH, is_errors, rejecting_branch

SEGMENT_SUFFIX = ".seg"
TEMPORARY = ".tmp-"
"""Prefix of names under which a put writes first; nobody else reads or makes them."""

OUTPUT_PROBE = ".probe-"
"""Start of the names by which committers try whether the output can be written at all; not data."""

ANY_OUTPUT_PROBE = f"{OUTPUT_PROBE}*"
"""Stands for all of them where a person reads."""

WRITING = ".writing"
"""Suffix of a staged file that is not closed yet."""

CLAIM_FOLDER = ".distcommit"
"""Folder in the staging and the output root that says whose they are; no dataset's folder begins with a dot."""

STORE_PROBE = "probe-"
"""Start of the names with which a store that is made tries its file system; not data. One may stay where the disk
failed just then; the next who makes a store sweeps it."""

MANIFEST = "_manifest.json"
"""What makes a run's plan count. Names beside tables begin with an underscore: who reads tables passes over these."""

INGEST_ENDED = "_INGEST_ENDED"
"""Empty file beside a run's task states: no more are awaited."""

SPOOL_FOLDER = "batches"
"""Folder in the staging root where micro-batches are spooled; their query takes away what it left there. What Spark's
readers read is there, too; the job's next run takes that away."""

STORE_MARKER = "store.json"
"""What makes a folder a job's store; written last as it is made."""

SETTINGS = "settings"
"""Folder in the store of the settings that give what is stored its meaning, in numbered documents."""

JOB_LOG = "log/job"
"""Folder in the store of the job log."""

PLANS, TASK_STATES, PROGRESS = "plans", "task_states", "progress"
"""Folders in the store, below them one for each run: of its plans, of what its attempts say, and of how far it is."""

SET_ASIDE = "set_aside"
"""Folder in the store of what a rebuild has taken out of the output and of logs."""

GENERATIONS = "log/generations"
"""Folder in the store with the bucket logs of each generation but the first, whose logs are beside it."""

RUNS = "runs"
"""Folder in the store of what each run leaves of itself."""

BEGUN, CANCEL = "begun", "cancel"
"""What else there may be of a run beside its record: that it has begun, and that it is to end."""

SCHEDULE = "schedule"
"""Folder in the store of what people ask of services that run the job."""

PAUSED = "paused.json"
"""In there: that the job is not to run by its schedule."""

HORIZONS = "horizons"
"""Folder in the store of what retention was asked to take, in numbered documents: the newest says how far."""

RUN_DATASETS = "run_datasets"
"""Folder in the store of what became of each dataset in each run."""

RUN_TIMES = "run_times"
"""Folder in the store of when the tasks of each run committed what."""

LOCK = "lock"
"""Folder in the store of who holds the job, and below it of those who run without holding it."""

SCHEMAS = "schemas"
"""Folder in the store with the columns that converters have inferred."""

CUTS = "cuts"
"""Folder in the store of what readers go by, and below it
"""
PIECES = f"{CUTS}/pieces"
"""that of which datasets moved where, by bucket."""

REJECTED_FOLDER = "_rejected"
"""Folder of the output root for the error branches of all datasets; readers take names with `_` for hidden."""

_NUMBERED = re.compile(r"(\d{12})\.json")
_RECORD = re.compile(rf"(\d{{10,}})(?:-({BEGUN}|{CANCEL}))?\.json")
_CUT = re.compile(r"(\d{10,})-([12])\.json")
_PIECE = re.compile(r"(\d{10,})-\d{5,}-\d{12,}-[0-9a-f]{16}\.json")
_TRIGGER = re.compile(r"[0-9a-f]{32}-trigger\.json")
_MARK = re.compile(r"(\d{10,})-([a-z]+)")
_PARTITION = re.compile(r"partition=(\d{5,})-of-(\d{5,})")
_WORK_UNIT = re.compile(r"(\d{5,})_\d{6,}")
_MAX_START_BYTES = 240  # leaves room for numbers and suffixes in the 255 bytes that file systems allow
_PUBLISHED = re.compile(r"\d{10,}-\d{5,}_\d{6,}-[0-9a-f]{32}-\d{4,}\.[a-z]+(\.[a-z]+)?")
_TOMBSTONE_SUFFIX = ".tombstone"
_TOMBSTONE = re.compile(rf"_\d{{10,}}-\d{{5,}}_\d{{6,}}-[0-9a-f]{{32}}{re.escape(_TOMBSTONE_SUFFIX)}")


def temporary_name(name: str, nonce: str) -> str:
    """Under which a put writes first what is to have that name; the nonce is nobody else's."""
    return f"{TEMPORARY}{name}-{nonce}"


def is_temporary(name: str) -> bool:
    """Whether a put has written, or writes, under that name first."""
    return name.startswith(TEMPORARY)


def lasting_name(name: str) -> str:
    """The name that a file is to have in the end, which may have it already."""
    return name.removeprefix(TEMPORARY).rpartition("-")[0] if is_temporary(name) else name


def output_probe_name(bucket: int, nonce: str) -> str:
    """Name of a file by which a committer of that bucket tries the output; the nonce is nobody else's."""
    return f"{OUTPUT_PROBE}{bucket}-{nonce}"


def probed_bucket(name: str) -> int | None:
    """The bucket of the committer that has tried the output with a file of that name, None for any other file."""
    if not name.startswith((OUTPUT_PROBE, TEMPORARY)):  # nearly always
        return None
    _, probe, rest = name.rpartition(OUTPUT_PROBE)
    bucket = rest.partition("-")[0]
    return int(bucket) if probe and bucket.isdecimal() else None


def store_probe_name(nonce: str) -> str:
    """Name of a file with which a store that is made tries its file system; the nonce is nobody else's."""
    return f"{STORE_PROBE}{nonce}"


def is_store_probe(name: str) -> bool:
    """Whether a store that is made has tried its file system with a file, or folder, of that name."""
    return name.removeprefix(TEMPORARY).startswith(STORE_PROBE)


def is_probe(name: str) -> bool:
    """Whether that is the name of a file by which somebody tried the file system, below any root."""
    return name.removeprefix(TEMPORARY).startswith((OUTPUT_PROBE, STORE_PROBE))


def bucket_name(bucket: int) -> str:
    """Folder name of a bucket."""
    return f"bucket={bucket:05d}"


def bucket_number(name: str) -> int | None:
    """The bucket of such a folder name, None for any other name."""
    digits = name.removeprefix("bucket=")
    return int(digits) if digits.isdecimal() and digits.isascii() and bucket_name(int(digits)) == name else None


def partition_name(partition: int, partitions: int) -> str:
    """Folder name of what one of so many partitions owns in a run: of bucket b, partition b mod `partitions`."""
    return f"partition={partition:05d}-of-{partitions:05d}"


def partition_of(name: str) -> tuple[int, int] | None:
    """The partition of such a folder name, and of how many; None for any other name."""
    found = _PARTITION.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def holds_bucket(name: str, bucket: int) -> bool:
    """Whether what a run has of a bucket is in a folder of that name. Before partitions had folders, each bucket had
    one."""
    known = partition_of(name)
    return bucket % known[1] == known[0] if known is not None else name == bucket_name(bucket)


def log_folder(generation: int, bucket: int) -> str:
    """Folder of a bucket's log, relative to the store."""
    return f"{GENERATIONS}/{generation:05d}/{bucket_name(bucket)}" if generation else f"log/{bucket_name(bucket)}"


def epoch_name(epoch: int) -> str:
    """Folder name of a run's epoch."""
    return f"{epoch:010d}"


_RUN = "run="


def run_name(run_id: str) -> str:
    """Folder name of a run: in the store, below what each run leaves of a kind."""
    return f"{_RUN}{run_id}"


def is_run_name(name: str) -> bool:
    """Whether a folder's name is a run's."""
    return name.startswith(_RUN)


def run_id_of(name: str) -> str:
    """The id of the run whose folder has that name."""
    return name.removeprefix(_RUN)


def numbered_name(number: int) -> str:
    """File name of one of the documents of which the one with the highest number counts."""
    return f"{number:012d}.json"


def number_of(name: str) -> int | None:
    """The number of such a file name, None for any other name."""
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else None


def mark_name(epoch: int, mark: str) -> str:
    """File name of what the run of an epoch says in the output, beside whose it is."""
    return f"{epoch_name(epoch)}-{mark}"


def mark_of(name: str) -> tuple[int, str] | None:
    """The epoch and the mark of such a file name, None for any other name."""
    found = _MARK.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def published_folder(dataset_urn: str, branch: str = MAIN_BRANCH) -> str:
    """Folder of a branch's published files, below the output root: the dataset's, or one of the branch's name in it."""
    parts = [REJECTED_FOLDER, folder_of(dataset_urn)] if is_errors(branch) else [folder_of(dataset_urn)]
    named = rejecting_branch(branch) if is_errors(branch) else branch
    return "/".join(parts if named in ("", MAIN_BRANCH) else [*parts, named])


def published_start(epoch: int, work_unit_id: str, attempt: str) -> str:
    """Start of a published file's name that no other run, work unit or attempt has: the work unit's part never contains
    `-`.

    Raises:
        ConfigurationError: if it is too long.
    """
    work_unit = quote(work_unit_id, safe="=@").replace("-", "%2D")
    start = f"{epoch_name(epoch)}-{work_unit}-{quote(attempt, safe='=@')}"
    if len(start) <= _MAX_START_BYTES:
        return start
    raise ConfigurationError(
        "the names of a work unit and its attempt are too long for a file name",
        expected=f"at most {_MAX_START_BYTES} bytes",
        found=f"{len(start)} bytes: {start[:80]}...",
        todo="shorten the work unit ids that the source plans",
    )


def published_name(start: str, number: int, ending: str) -> str:
    """Name of an attempt's file of that number, as it is published; `start` as by `published_start`."""
    return f"{start}-{staged_name(number, ending)}"


def staged_name(number: int, ending: str = "") -> str:
    """Name of an attempt's file of that number, as it is staged; without an ending a folder's, of files that go to one
    folder of the output."""
    return f"{number:04d}{ending}"


def writing_name(name: str) -> str:
    """Under which a staged file is written until it is closed, where it can be renamed then."""
    return f"{name}{WRITING}"


def is_published_name(name: str) -> bool:
    """Whether a file's name is one that the sink for files gives to what a job publishes: epoch, work unit, attempt and
    number."""
    return _PUBLISHED.fullmatch(name) is not None


def published_epoch(name: str) -> int:
    """The epoch that such a file's name begins with; a tombstone's, too."""
    return int(name.removeprefix("_").partition("-")[0])


def cut_name(epoch: int, phase: int) -> str:
    """File name of the root of a run's cut."""
    return f"{epoch_name(epoch)}-{phase}.json"


def cut_of(name: str) -> tuple[int, int] | None:
    """The epoch and the phase of such a file name, None for any other name."""
    found = _CUT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def piece_name(epoch: int, bucket: int, number: int, checksum: str) -> str:
    """File name of a piece of cuts: whose run made it, of which bucket, at which segment of its log, and what it says
    (16 hexadecimal digits)."""
    return f"{epoch_name(epoch)}-{bucket:05d}-{number:012d}-{checksum}.json"


def piece_epoch(name: str) -> int | None:
    """The epoch of such a file name, None for any other name."""
    found = _PIECE.fullmatch(name)
    return int(found[1]) if found else None


def tombstone_path(dataset_folder: str, epoch: int, work_unit_id: str, attempt: str) -> str:
    """Path of a tombstone, below the output root: beside the dataset's error files, whose readers pass it over."""
    return f"{REJECTED_FOLDER}/{dataset_folder}/_{epoch_name(epoch)}-{work_unit_id}-{attempt}{_TOMBSTONE_SUFFIX}"


def tombstones_among(paths: Iterable[str]) -> list[str]:
    """Those of these paths that `is_tombstone`."""
    return [path for path in paths if path.endswith(_TOMBSTONE_SUFFIX) and is_tombstone(path)]


def is_tombstone(path: str) -> bool:
    """Whether a file's name is one that a job gives to tombstones."""
    return path.endswith(_TOMBSTONE_SUFFIX) and _TOMBSTONE.fullmatch(path.rpartition("/")[2]) is not None


def record_name(epoch: int, what: str = "") -> str:
    """File name of what the run of an epoch leaves of itself, or of something else there is of it."""
    return f"{epoch_name(epoch)}{f'-{what}' if what else ''}.json"


def record_of(name: str) -> tuple[int, str] | None:
    """The epoch of such a file name, and what it holds; None for any other name."""
    found = _RECORD.fullmatch(name)
    known = (int(found[1]), found[2] or "") if found and name.isascii() else None
    return known if known and record_name(*known) == name else None


def trigger_name(request_id: str) -> str:
    """File name of somebody's wish that the job runs once; the id is 32 hexadecimal digits."""
    return f"{request_id}-trigger.json"


def is_trigger(name: str) -> bool:
    """Whether a file's name is that of such a wish."""
    return _TRIGGER.fullmatch(name) is not None


def set_aside_folder(epoch: int) -> str:
    """Folder of what the rebuild of an epoch has taken out of the output and of logs, relative to the store."""
    return f"{SET_ASIDE}/epoch={epoch_name(epoch)}"


def bucket_folder(epoch: int, bucket: int) -> str:
    """Staging folder of a bucket in a run, relative to the staging root."""
    return f"{epoch_name(epoch)}/{bucket_name(bucket)}"


def attempt_folder(epoch: int, bucket: int, work_unit_id: str, attempt: str) -> str:
    """Staging folder of one attempt at one work unit, relative to the staging root. Nobody else ever writes there."""
    return f"{bucket_folder(epoch, bucket)}/{work_unit_id}.{attempt}"


def work_unit_name(bucket: int, number: int) -> str:
    """The id of a work unit in its run: of a bucket's datasets, by number."""
    return f"{bucket:05d}_{number:06d}"


def bucket_of_work_unit(work_unit_id: str) -> int | None:
    """The bucket of the dataset of such a work unit, None if it is no id of one."""
    found = _WORK_UNIT.fullmatch(work_unit_id)
    return int(found[1]) if found else None


def work_unit_of(folder_name: str) -> str:
    """The work unit that an attempt folder belongs to."""
    return folder_name.rpartition(".")[0]


def segment_name(number: int) -> str:
    """File name of a log segment: its number and nothing else, so that a number has one holder."""
    return f"{number:012d}{SEGMENT_SUFFIX}"


@lru_cache(4096)  # a log is listed before and after each fold
def segment_number(name: str) -> int | None:
    """The number of a segment file name, None for any other name."""
    digits = name.removesuffix(SEGMENT_SUFFIX)
    return int(digits) if name.endswith(SEGMENT_SUFFIX) and len(digits) == 12 and digits.isdecimal() else None
