"""Corrupt logs: a rebuild sets their unreadable tail aside before it restores lost segments from published files."""

from __future__ import annotations

from collections.abc import Mapping

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.records.log_records import Checkpoint
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import segment_name, set_aside_folder
from distcommit.protocol.record_effects import apply
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.segment_format import Segment
from distcommit.stores.state.job_store import JobStore


def is_corrupt(log: CommitLog) -> bool:
    """Return whether a segment of the log is damaged or missing. Raise UnknownVersionError."""
    try:
        log.refresh()
    except UnknownVersionError:
        raise
    except CorruptError:
        return True
    return False


def fold_readable_part(log: CommitLog) -> Fold:
    """Return the state of the log's readable part. Raise UnknownVersionError."""
    if not is_corrupt(log):
        return log.refresh()
    segments, fold = _readable_segments(log), Fold()
    end = _readable_end(segments)
    base = max(
        (number for number in segments if number < end and isinstance(segments[number].record, Checkpoint)), default=end
    )
    for number in range(base, end):
        apply(number, segments[number].record, fold)
    return fold


def set_corrupt_tail_aside(store: JobStore, log: CommitLog, epoch: int) -> list[str]:
    """Move all segments above the readable part of a log to `set_aside` in the store.

    A log that becomes empty is created again. The caller must make sure that no run starts. After a crash the next call
    resumes, because the log stays unreadable until all segments are moved.

    Returns:
        the paths of the moved segments.

    Raises:
        UnknownVersionError: like `is_corrupt`.
    """
    if not is_corrupt(log):
        return []
    fs, end = store.fs, _readable_end(_readable_segments(log))
    base = f"{store.roots.store}/{set_aside_folder(epoch)}"
    folder = base + log.folder.removeprefix(store.roots.store)
    fs.make_folders(folder)
    moved = []
    for number in sorted(n for n, _ in log.segments() if n >= end):
        name = segment_name(number)
        fs.rename(f"{log.folder}/{name}", f"{folder}/{name}")
        moved.append(f"{log.folder}/{name}")
    if end == 1:
        log.create()
    fs.sync([folder, log.folder], store.roots.store)
    return moved


def _readable_segments(log: CommitLog) -> Mapping[int, Segment]:
    segments: dict[int, Segment] = {}
    for number, segment in log.segments():
        if isinstance(segment, UnknownVersionError):
            raise segment
        if isinstance(segment, Segment):
            segments[number] = segment
    return segments


def _readable_end(segments: Mapping[int, Segment]) -> int:
    """Return the end (exclusive) of the newest gap-free part from a checkpoint on; 1 if there is none."""
    for end in sorted((number + 1 for number in segments if number + 1 not in segments), reverse=True):
        base = max((n for n in segments if n < end and isinstance(segments[n].record, Checkpoint)), default=end)
        if base < end and all(number in segments for number in range(base, end)):
            return end
    return 1
