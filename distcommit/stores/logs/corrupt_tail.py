"""A log of which a part can't be read: what is left of it, and setting the rest aside.

For a rebuild alone, which then knows of a log that has lost its newest segments, and mends it from what is published.
"""

from __future__ import annotations

from collections.abc import Mapping

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.records.log_records import Checkpoint
from distcommit.protocol.fold import Fold
from distcommit.protocol.folding import apply
from distcommit.protocol.paths.store import segment_name, set_aside_folder
from distcommit.stores.logs.log import CommitLog
from distcommit.stores.logs.segment import Segment
from distcommit.stores.state.job_store import JobStore


def is_torn(log: CommitLog) -> bool:
    """Whether it can't be read, as a segment is damaged or missing.

    Raises:
        UnknownVersionError: if a newer version has written it.
    """
    try:
        log.refresh()
    except UnknownVersionError:
        raise
    except CorruptError:
        return True
    return False


def fold_of_rest(log: CommitLog) -> Fold:
    """What a log says, as far as it can be read. Raises as `is_torn`."""
    if not is_torn(log):
        return log.refresh()
    found, fold = _readable(log), Fold()
    end = _readable_to(found)
    base = max(
        (number for number in found if number < end and isinstance(found[number].record, Checkpoint)), default=end
    )
    for number in range(base, end):
        apply(number, found[number].record, fold)
    return fold


def set_torn_aside(store: JobStore, log: CommitLog, epoch: int) -> list[str]:
    """Moves what can't be read of a log, and all above it, to `set_aside` in the store; a log of which nothing is left
    begins anew. For who has made sure that nobody else begins. After a crash it goes on: until all are moved, the log
    can't be read, as no checkpoint that can be is among them.

    Returns:
        the paths that were moved.

    Raises:
        UnknownVersionError: as `is_torn`.
    """
    if not is_torn(log):
        return []
    fs, end = store.fs, _readable_to(_readable(log))
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


def _readable(log: CommitLog) -> Mapping[int, Segment]:
    found: dict[int, Segment] = {}
    for number, segment in log.segments():
        if isinstance(segment, UnknownVersionError):
            raise segment
        if isinstance(segment, Segment):
            found[number] = segment
    return found


def _readable_to(found: Mapping[int, Segment]) -> int:
    """The number below which a log can be read from a checkpoint on without a gap; 1 if there is no such one."""
    for end in sorted((number + 1 for number in found if number + 1 not in found), reverse=True):
        base = max((n for n in found if n < end and isinstance(found[n].record, Checkpoint)), default=end)
        if base < end and all(number in found for number in range(base, end)):
            return end
    return 1
