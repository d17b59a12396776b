"""Find data files of aborted attempts in Delta tables' folders, and those of them that must not be deleted.

A store that was restored from a copy takes attempts for aborted that were committed since. So no file is deleted that a
version of its table has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from deltalake import DeltaTable

from distcommit.core.interfaces.committer import AbortedAttempt, CommitterContext
from distcommit.core.support.parallel import run_parallel
from distcommit.sinks.delta.data_files import name_in_table
from distcommit.sinks.delta.locations import Location
from distcommit.sinks.table_formats.data_files import left_by, warn_of_gone_table, warn_of_kept


def orphaned_files(context: CommitterContext, sink: str, lost: Sequence[AbortedAttempt]) -> dict[str, set[str]]:
    """Return the paths of a sink's data files of these attempts, by the table's name."""
    by_table: dict[str, set[str]] = {}
    for path in (path for each in lost for path in left_by(context, sink, each)):
        by_table.setdefault(path.partition("/")[0], set()).add(path)
    return by_table


def existing(location: Location, paths: AbstractSet[str]) -> set[str]:
    """Return those of the files that exist."""
    names = sorted(paths)
    sizes = run_parallel(location.parallel_calls, location.size_of, names)
    return {path for path, size in zip(names, sizes, strict=True) if size >= 0}


def kept(table: DeltaTable | None, name: str, paths: AbstractSet[str]) -> set[str]:
    """Return those of the files that must not be deleted, and log them.

    These are files of the present version, and removed files that older versions are still read from. If the table is
    gone, nothing proves which files those are, and all are kept.
    """
    if table is None:
        if paths:
            warn_of_gone_table(paths)
        return {*paths}
    removed = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
    named = {os.path.basename(path) for path in (*table.file_uris(), *removed)}
    needed = {path for path in paths if name_in_table(path) in named}
    if needed:
        warn_of_kept(name, needed)
    return needed
