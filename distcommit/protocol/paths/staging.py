"""Names below the staging root."""

from __future__ import annotations

from distcommit.protocol.paths.parts import bucket_name, epoch_name

WRITING = ".writing"
"""Suffix of a staged file that is not closed yet."""

SPOOL_FOLDER = "batches"
"""Folder in the staging root where micro-batches are spooled; their query takes away what it left there. What Spark's
readers read is there, too; the job's next run takes that away."""

_DATA_FILE_NOTE = ".path"


def staged_name(number: int, ending: str = "") -> str:
    """Name of an attempt's file of that number, as it is staged; without an ending a folder's, of files that go to one
    folder of the output."""
    return f"{number:04d}{ending}"


def writing_name(name: str) -> str:
    """Under which a staged file is written until it is closed, where it can be renamed then."""
    return f"{name}{WRITING}"


def data_file_note(name: str) -> str:
    """Name of the note that says where a table's data file of that name is to be."""
    return f"{name}{_DATA_FILE_NOTE}"


def is_data_file_note(name: str) -> bool:
    """Whether a file's name is that of such a note."""
    return name.endswith(_DATA_FILE_NOTE)


def bucket_folder(epoch: int, bucket: int) -> str:
    """Staging folder of a bucket in a run, relative to the staging root."""
    return f"{epoch_name(epoch)}/{bucket_name(bucket)}"


def attempt_folder(epoch: int, bucket: int, work_unit_id: str, attempt: str) -> str:
    """Staging folder of one attempt at one work unit, relative to the staging root. Nobody else ever writes there."""
    return f"{bucket_folder(epoch, bucket)}/{work_unit_id}.{attempt}"


def work_unit_of(folder_name: str) -> str:
    """The work unit that an attempt folder belongs to."""
    return folder_name.rpartition(".")[0]
