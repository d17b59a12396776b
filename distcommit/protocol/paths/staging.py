"""Names below the staging root."""

from __future__ import annotations

from distcommit.protocol.paths.parts import bucket_name, epoch_name
from distcommit.protocol.paths.temporary import is_temporary

WRITING = ".writing"
"""Suffix of a staged file that is not closed yet."""

SPOOL_FOLDER = "batches"
"""Folder in the staging root where micro-batches are spooled; their query takes away what it left there. What Spark's
readers read is there, too; the job's next run takes that away."""

SPOOLED_FRAMES = f"{SPOOL_FOLDER}/frames"
"""That of what Spark's readers read, relative to the staging root."""

SPOOL_INDEX = "index.json"
"""Beside what is spooled: what of it counts, and what it is of."""

_ATTEMPT_NOTE = ".open"


def staged_name(number: int, ending: str = "") -> str:
    """Name of an attempt's file of that number, as it is staged; without an ending a folder's, of files that go to one
    folder of the output."""
    return f"{number:04d}{ending}"


def writing_name(name: str) -> str:
    """Under which a staged file is written until it is closed, where it can be renamed then."""
    return f"{name}{WRITING}"


def bucket_folder(epoch: int, bucket: int) -> str:
    """Staging folder of a bucket in a run, relative to the staging root."""
    return f"{epoch_name(epoch)}/{bucket_name(bucket)}"


def attempt_folder(epoch: int, bucket: int, work_unit_id: str, attempt: str) -> str:
    """Staging folder of one attempt at one work unit, relative to the staging root. Nobody else ever writes there."""
    return f"{bucket_folder(epoch, bucket)}/{work_unit_id}.{attempt}"


def attempt_note(attempt_folder: str) -> str:
    """Name of the note that an attempt may have left something at a sink's target: a file beside its folder. Also of
    paths."""
    return f"{attempt_folder}{_ATTEMPT_NOTE}"


def noted_attempt(name: str) -> str | None:
    """The name of the folder of the attempt that such a note is of, None for any other name."""
    return name.removesuffix(_ATTEMPT_NOTE) if name.endswith(_ATTEMPT_NOTE) and not is_temporary(name) else None


def spooled_micro_batch(query_id: str, batch_id: int, nonce: str) -> str:
    """Folder of a micro-batch of a query, relative to the staging root; the nonce is nobody else's."""
    return f"{spooled_query(query_id)}/{batch_id}-{nonce}"


def spooled_query(query_id: str) -> str:
    """Folder of the micro-batches of a query, relative to the staging root."""
    return f"{SPOOL_FOLDER}/{query_id}"


def rows_name(number: int, of: str = "") -> str:
    """Name of a file of rows that only this program reads again, an Arrow stream; `of`: whose, where several write to
    one folder."""
    return f"{of}{'-' if of else ''}{number:05d}.arrows"


def spooled_dataset(number: int) -> str:
    """Folder name of the dataset of that number, of those that Spark's readers read."""
    return f"{number:05d}"


def attempt_of(folder_name: str) -> str:
    """The attempt that an attempt folder belongs to."""
    return folder_name.rpartition(".")[2]


def work_unit_of(folder_name: str) -> str:
    """The work unit that an attempt folder belongs to."""
    return folder_name.rpartition(".")[0]
