"""Names below the staging root."""

from __future__ import annotations

from distcommit.protocol.paths.shared_names import bucket_name, epoch_name
from distcommit.protocol.paths.temporary_and_probes import is_temporary

WRITING = ".writing"
"""Suffix of unclosed staged files."""

SPOOL_FOLDER = "batches"
"""Folder in the staging root for spooled micro-batches and for spooled rows of Spark readers.

A streaming query deletes its micro-batches. The job's next run deletes the rows of Spark readers.
"""

SPOOLED_FRAMES = f"{SPOOL_FOLDER}/frames"
"""Folder of spooled rows of Spark readers, relative to the staging root."""

SPOOL_INDEX = "index.json"
"""File that lists complete files of spooled rows and their source."""

_ATTEMPT_NOTE = ".open"


def staged_name(number: int, ending: str = "") -> str:
    """Return the name of a staged file; without `ending`, of a staged folder."""
    return f"{number:04d}{ending}"


def writing_name(name: str) -> str:
    """Return the name of a staged file until it is closed, if the file system can then rename it."""
    return f"{name}{WRITING}"


def bucket_folder(epoch: int, bucket: int) -> str:
    return f"{epoch_name(epoch)}/{bucket_name(bucket)}"


def attempt_folder(epoch: int, bucket: int, work_unit_id: str, attempt: str) -> str:
    return f"{bucket_folder(epoch, bucket)}/{work_unit_id}.{attempt}"


def attempt_note(attempt_folder: str) -> str:
    """Return the note beside an attempt's folder (name or path)."""
    return f"{attempt_folder}{_ATTEMPT_NOTE}"


def noted_attempt(name: str) -> str | None:
    return name.removesuffix(_ATTEMPT_NOTE) if name.endswith(_ATTEMPT_NOTE) and not is_temporary(name) else None


def spooled_micro_batch(query_id: str, batch_id: int, nonce: str) -> str:
    return f"{spooled_query(query_id)}/{batch_id}-{nonce}"


def spooled_query(query_id: str) -> str:
    return f"{SPOOL_FOLDER}/{query_id}"


def rows_name(number: int, of: str = "") -> str:
    """Return the name of an Arrow stream; `of` names the writer in a shared folder."""
    return f"{of}{'-' if of else ''}{number:05d}.arrows"


def spooled_dataset(number: int) -> str:
    return f"{number:05d}"


def attempt_of(folder_name: str) -> str:
    return folder_name.rpartition(".")[2]


def work_unit_of(folder_name: str) -> str:
    return folder_name.rpartition(".")[0]
