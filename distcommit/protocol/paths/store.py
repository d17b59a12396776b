"""Names below the store."""

from __future__ import annotations

import re
from functools import lru_cache

from distcommit.protocol.paths.parts import bucket_name, epoch_name

SEGMENT_SUFFIX = ".seg"

MANIFEST = "_manifest.json"
"""What makes a run's plan count. Names beside tables begin with an underscore: who reads tables passes over these."""

INGEST_ENDED = "_INGEST_ENDED"
"""Empty file beside a run's task states: no more are awaited."""

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
"""Folder in the store of what readers go by."""

PIECES = f"{CUTS}/pieces"
"""Below it, the folder of which datasets moved where, by bucket."""

_NUMBERED = re.compile(r"(\d{12})\.json")
_RUN_TIMES = re.compile(r"[a-z]+-\d{5,}-([0-9a-f]{32})\.parquet")
_RECORD = re.compile(rf"(\d{{10,}})(?:-({BEGUN}|{CANCEL}))?\.json")
_CUT = re.compile(r"(\d{10,})-([12])\.json")
_PIECE = re.compile(r"(\d{10,})-\d{5,}-\d{12,}-[0-9a-f]{16}\.json")
_TRIGGER = re.compile(r"[0-9a-f]{32}-trigger\.json")
_PARTITION = re.compile(r"partition=(\d{5,})-of-(\d{5,})")


def numbered_name(number: int) -> str:
    """File name of one of the documents of which the one with the highest number counts."""
    return f"{number:012d}.json"


def number_of(name: str) -> int | None:
    """The number of such a file name, None for any other name."""
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else None


def partition_name(partition: int, partitions: int) -> str:
    """Folder name of what one of so many partitions owns in a run: of bucket b, partition b mod `partitions`."""
    return f"partition={partition:05d}-of-{partitions:05d}"


def partition_of(name: str) -> tuple[int, int] | None:
    """The partition of such a folder name, and of how many; None for any other name."""
    found = _PARTITION.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def holds_bucket(name: str, bucket: int) -> bool:
    """Return whether a folder of that name is the one of the partition that owns the bucket."""
    known = partition_of(name)
    return known is not None and bucket % known[1] == known[0]


def log_folder(generation: int, bucket: int) -> str:
    """Folder of a bucket's log, relative to the store."""
    return f"{GENERATIONS}/{generation:05d}/{bucket_name(bucket)}" if generation else f"log/{bucket_name(bucket)}"


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


def set_aside_root(store_root: str) -> str:
    """Return the folder of all that was set aside."""
    return f"{store_root}/{SET_ASIDE}"


def set_aside_by(run_id: str) -> str:
    """Return the folder of damaged files that an operator action has set aside, relative to the store."""
    return f"{SET_ASIDE}/{run_name(run_id)}"


def table_file_name(start: str, checksum: str) -> str:
    """Name of a table file: of a plan, or of task states. It ends in the checksum of its bytes."""
    return f"{start}{_checked(checksum)}"


def has_checksum(path: str, checksum: str) -> bool:
    """Whether a table file's name is for bytes of that checksum."""
    return path.endswith(_checked(checksum))


def _checked(checksum: str) -> str:
    return f"-{checksum}.parquet"


def task_states_start(writer: str, number: int) -> str:
    """Start of the name of the table file of task states of that number, of an attempt at a Spark task."""
    return f"{writer}-{number:06d}"


def is_table(name: str) -> bool:
    """Whether a file's name is that of a table, put as a whole."""
    return name.endswith(".parquet") and not name.startswith(".")


def writer_of(path: str) -> str:
    """Who has put a table file of task states, by its name."""
    return path.rpartition("/")[2].partition("-")[0]


def run_datasets_name(phase: str, partition: int) -> str:
    """File name of what became of a partition's datasets in a phase of a run."""
    return f"{phase}-{partition:05d}.parquet"


def run_datasets_phase(name: str) -> str:
    """The phase of such a file name, empty if it is no table's."""
    return name.partition("-")[0] if name.endswith(".parquet") else ""


def run_times_name(phase: str, task: int, writer: str) -> str:
    """File name of when an attempt at a task of a phase committed what; `writer` (32 hexadecimal digits) is nobody
    else's."""
    return f"{phase}-{task:05d}-{writer}.parquet"


def run_times_writer(name: str) -> str | None:
    """The writer of such a file name, None for any other name."""
    found = _RUN_TIMES.fullmatch(name)
    return found[1] if found else None


def progress_name(job: str, task: int, writer: str, number: int) -> str:
    """File name of how far a task of a Spark job is: of what an attempt at it (`writer`) has written, the newest has
    the highest number."""
    return f"{job}-{task:05d}-{writer}-{number:08d}"


def progress_task(name: str) -> str:
    """What all such file names of a task begin with."""
    return name.rsplit("-", 2)[0]


def segment_name(number: int) -> str:
    """File name of a log segment: its number and nothing else, so that a number has one holder."""
    return f"{number:012d}{SEGMENT_SUFFIX}"


@lru_cache(4096)  # a log is listed before and after each fold
def segment_number(name: str) -> int | None:
    """The number of a segment file name, None for any other name."""
    digits = name.removesuffix(SEGMENT_SUFFIX)
    return int(digits) if name.endswith(SEGMENT_SUFFIX) and len(digits) == 12 and digits.isdecimal() else None
