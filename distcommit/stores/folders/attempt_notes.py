"""Notes in task output that an attempt may have left something at a sink's target: a file beside its folder.

`<epoch>/<bucket>/<work unit>.<attempt>.open`; its bytes are the names of the sinks, a line each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distcommit.core.ports import FileSystem
from distcommit.core.support.parallel import in_flight
from distcommit.protocol.paths.staging import attempt_note, attempt_of, bucket_folder, noted_attempt, work_unit_of
from distcommit.protocol.paths.temporary import is_temporary


@dataclass(frozen=True, slots=True)
class NotedAttempt:
    """An attempt of a run, and the sinks that its writers write to. `folder` is relative to the staging root, and may
    be gone."""

    epoch: int
    work_unit_id: str
    attempt: str
    folder: str
    sinks: tuple[str, ...]


def make_notes_durable(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> None:
    """Makes the folder durable that notes of a run are put into, and after its notes were deleted, that they are."""
    fs.sync([f"{staging_root}/{bucket_folder(epoch, bucket)}"], staging_root)


def note_attempt(fs: FileSystem, staging_root: str, folder: str, sinks: Iterable[str]) -> None:
    """Notes an attempt by its folder, durably in a durable folder.

    Raises:
        OSError: if it can't be; then its writers may not be opened.
    """
    fs.put_if_absent(f"{staging_root}/{attempt_note(folder)}", "\n".join(sinks).encode())


def noted_attempts(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> list[NotedAttempt]:
    """The attempts of a run in a bucket that are noted, by name."""
    folder = bucket_folder(epoch, bucket)
    entries = sorted(entry.name for entry in fs.list_folder(f"{staging_root}/{folder}") if not entry.is_folder)
    found = []
    for name in entries:
        own = noted_attempt(name)
        if own is None:
            continue
        try:
            sinks = fs.read(f"{staging_root}/{folder}/{name}").decode().split("\n")
        except FileNotFoundError:  # somebody else was first
            continue
        found.append(
            NotedAttempt(epoch, work_unit_of(own), attempt_of(own), f"{folder}/{own}", tuple(filter(None, sinks)))
        )
    return found


def remove_unfinished_notes(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> None:
    """Deletes what a dead run has left that was about to note an attempt."""
    folder = f"{staging_root}/{bucket_folder(epoch, bucket)}"
    for entry in fs.list_folder(folder):
        if is_temporary(entry.name) and not entry.is_folder:
            fs.delete(f"{folder}/{entry.name}")


def remove_notes(fs: FileSystem, staging_root: str, noted: Iterable[NotedAttempt]) -> None:
    """Deletes notes; missing ones are fine."""
    in_flight(fs.parallel_calls, lambda each: fs.delete(f"{staging_root}/{attempt_note(each.folder)}"), list(noted))
