"""Notes in task output: an attempt may have left data at a sink's target. Each is a file beside the attempt's folder.

`<epoch>/<bucket>/<work unit>.<attempt>.open`; the content is the names of the sinks, one a line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distcommit.core.ports import FileSystem
from distcommit.core.support.parallel import run_parallel
from distcommit.protocol.paths.staging import attempt_note, attempt_of, bucket_folder, noted_attempt, work_unit_of
from distcommit.protocol.paths.temporary_and_probes import is_temporary


@dataclass(frozen=True, slots=True)
class NotedAttempt:
    """A noted attempt.

    Attributes:
        epoch: epoch of its run.
        work_unit_id: its work unit.
        attempt: its id.
        folder: its folder, relative to the staging root; may be gone.
        sinks: names of the sinks that its writers write to.
    """

    epoch: int
    work_unit_id: str
    attempt: str
    folder: str
    sinks: tuple[str, ...]


def make_notes_durable(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> None:
    """Make notes of a run in a bucket durable; also the deletion of notes."""
    fs.sync([f"{staging_root}/{bucket_folder(epoch, bucket)}"], staging_root)


def note_attempt(fs: FileSystem, staging_root: str, folder: str, sinks: Iterable[str]) -> None:
    """Note an attempt. Durable if the parent folder is.

    Raises:
        OSError: if it cannot be noted; its writers must not be opened then.
    """
    fs.put_if_absent(f"{staging_root}/{attempt_note(folder)}", "\n".join(sinks).encode())


def noted_attempts(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> list[NotedAttempt]:
    """Return the noted attempts of a run in a bucket, by name."""
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
    """Delete temporary files of a dead run that was noting an attempt."""
    folder = f"{staging_root}/{bucket_folder(epoch, bucket)}"
    for entry in fs.list_folder(folder):
        if is_temporary(entry.name) and not entry.is_folder:
            fs.delete(f"{folder}/{entry.name}")


def remove_notes(fs: FileSystem, staging_root: str, noted: Iterable[NotedAttempt]) -> None:
    """Delete notes. Missing ones are ignored."""
    run_parallel(
        fs.parallel_calls, lambda attempt: fs.delete(f"{staging_root}/{attempt_note(attempt.folder)}"), list(noted)
    )
