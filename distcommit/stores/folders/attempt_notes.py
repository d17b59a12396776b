"""Notes of attempts: files beside the attempts' folders, which record that an attempt may have left data at a target.

`<epoch>/<bucket>/<work unit>.<attempt>.open` contains the names of the sinks, one per line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.support.parallel import run_parallel
from distcommit.protocol.paths.staging import attempt_note, attempt_of, bucket_folder, noted_attempt, work_unit_of
from distcommit.protocol.paths.temporary_and_probes import is_temporary


@dataclass(frozen=True, slots=True)
class NotedAttempt:
    """An attempt with a note.

    Attributes:
        epoch: epoch of the attempt's run.
        work_unit_id: work unit of the attempt.
        attempt: id of the attempt.
        folder: folder of the attempt, relative to the staging root. The folder may be gone.
        sinks: names of the sinks that the attempt's writers write to.
    """

    epoch: int
    work_unit_id: str
    attempt: str
    folder: str
    sinks: tuple[str, ...]


def make_notes_durable(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> None:
    fs.sync([f"{staging_root}/{bucket_folder(epoch, bucket)}"], staging_root)


def note_attempt(fs: FileSystem, staging_root: str, folder: str, sinks: Iterable[str]) -> None:
    """Create the note of an attempt. It is durable once `make_notes_durable` was called for the bucket, as planning
    does.

    Raises:
        OSError: if the note cannot be created. The caller must not open the attempt's writers then.
    """
    fs.put_if_absent(f"{staging_root}/{attempt_note(folder)}", "\n".join(sinks).encode())


def noted_attempts(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> list[NotedAttempt]:
    """Return the attempts with a note of a run in a bucket, sorted by file name."""
    folder = bucket_folder(epoch, bucket)
    entries = sorted(entry.name for entry in fs.list_folder(f"{staging_root}/{folder}") if not entry.is_folder)
    noted = []
    for name in entries:
        attempt_name = noted_attempt(name)
        if attempt_name is None:
            continue
        try:
            sinks = fs.read(f"{staging_root}/{folder}/{name}").decode().split("\n")
        except FileNotFoundError:  # another process has removed it
            continue
        noted.append(
            NotedAttempt(
                epoch,
                work_unit_of(attempt_name),
                attempt_of(attempt_name),
                f"{folder}/{attempt_name}",
                tuple(filter(None, sinks)),
            )
        )
    return noted


def remove_unfinished_notes(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> None:
    folder = f"{staging_root}/{bucket_folder(epoch, bucket)}"
    for entry in fs.list_folder(folder):
        if is_temporary(entry.name) and not entry.is_folder:
            fs.delete(f"{folder}/{entry.name}")


def remove_notes(fs: FileSystem, staging_root: str, noted: Iterable[NotedAttempt]) -> None:
    run_parallel(
        fs.parallel_calls, lambda attempt: fs.delete(f"{staging_root}/{attempt_note(attempt.folder)}"), list(noted)
    )
