"""Names below the staging root."""

from __future__ import annotations

from distcommit.protocol.paths.shared_names import bucket_name, epoch_name
from distcommit.protocol.paths.temporary_and_probes import is_temporary

WRITING = ".writing"
"""Suffix of a staged file that is not closed yet."""

SPOOL_FOLDER = "batches"
"""Folder in the staging root for spooled micro-batches and for spooled rows of Spark readers.

A streaming query deletes its micro-batches. The job's next run deletes the rows of Spark readers.
"""

SPOOLED_FRAMES = f"{SPOOL_FOLDER}/frames"
"""Folder of spooled rows of Spark readers, relative to the staging root."""

SPOOL_INDEX = "index.json"
"""File beside spooled rows that lists the complete files and their source."""

_ATTEMPT_NOTE = ".open"


def staged_name(number: int, ending: str = "") -> str:
    """Return the name of an attempt's staged file of that number.

    Without an ending, it is the name of a staged folder, for files with one target folder.
    """
    return f"{number:04d}{ending}"


def writing_name(name: str) -> str:
    """Return the name that a staged file has until it is closed, on file systems that can rename it afterwards."""
    return f"{name}{WRITING}"


def bucket_folder(epoch: int, bucket: int) -> str:
    """Return the staging folder of a bucket in a run, relative to the staging root."""
    return f"{epoch_name(epoch)}/{bucket_name(bucket)}"


def attempt_folder(epoch: int, bucket: int, work_unit_id: str, attempt: str) -> str:
    """Return the staging folder of one attempt at one work unit, relative to the staging root. No other attempt writes
    there."""
    return f"{bucket_folder(epoch, bucket)}/{work_unit_id}.{attempt}"


def attempt_note(attempt_folder: str) -> str:
    """Return the name of the marker file of an attempt that may have left data at a sink's target.

    The marker is beside the attempt's folder. Accepts the folder's name or path.
    """
    return f"{attempt_folder}{_ATTEMPT_NOTE}"


def noted_attempt(name: str) -> str | None:
    """Return the name of the attempt's folder that a marker file belongs to, None for any other name."""
    return name.removesuffix(_ATTEMPT_NOTE) if name.endswith(_ATTEMPT_NOTE) and not is_temporary(name) else None


def spooled_micro_batch(query_id: str, batch_id: int, nonce: str) -> str:
    """Return the folder of a query's micro-batch, relative to the staging root. The nonce is unique."""
    return f"{spooled_query(query_id)}/{batch_id}-{nonce}"


def spooled_query(query_id: str) -> str:
    """Return the folder of a query's micro-batches, relative to the staging root."""
    return f"{SPOOL_FOLDER}/{query_id}"


def rows_name(number: int, of: str = "") -> str:
    """Return the name of a private file of rows, an Arrow stream.

    `of` names the writer if several writers share a folder.
    """
    return f"{of}{'-' if of else ''}{number:05d}.arrows"


def spooled_dataset(number: int) -> str:
    """Return the folder name of a dataset, by number, among the spooled rows of Spark readers."""
    return f"{number:05d}"


def attempt_of(folder_name: str) -> str:
    """Return the attempt that an attempt folder belongs to."""
    return folder_name.rpartition(".")[2]


def work_unit_of(folder_name: str) -> str:
    """Return the work unit that an attempt folder belongs to."""
    return folder_name.rpartition(".")[0]
