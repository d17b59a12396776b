"""What attempts that lost have left in tables' folders, and which of it a table has after all.

A store that was put back from a copy takes for lost what tables have committed since. So no file is deleted that a
version of its table has.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from deltalake import DeltaTable

from distcommit.core.interfaces.committer import CommitterContext, LostAttempt
from distcommit.core.support.parallel import in_flight
from distcommit.sinks.delta.data_files import name_in_table
from distcommit.sinks.delta.locations import Location
from distcommit.sinks.table_formats.data_files import left_by, tell_kept

logger = logging.getLogger(__name__)


def leftovers(context: CommitterContext, sink: str, lost: Sequence[LostAttempt]) -> dict[str, set[str]]:
    """The files of a sink that these attempts have left, or had, by the table's name."""
    found: dict[str, set[str]] = {}
    for path in (path for each in lost for path in left_by(context, sink, each)):
        found.setdefault(path.partition("/")[0], set()).add(path)
    return found


def existing(location: Location, paths: AbstractSet[str]) -> set[str]:
    """Those of the files that are there."""
    names = sorted(paths)
    sizes = in_flight(location.parallel_calls, location.size_of, names)
    return {path for path, size in zip(names, sizes, strict=True) if size >= 0}


def kept(table: DeltaTable | None, name: str, paths: AbstractSet[str]) -> set[str]:
    """Those of the files that may not be deleted, of which it is warned: the table has them, or has had them, and its
    older versions are still read from them: its log says that they were taken out. And all of a table that is gone, as
    nothing says so then."""
    if table is None:
        if paths:
            logger.warning("the table of these data files is gone, and they stay: %s", ", ".join(sorted(paths)[:3]))
        return {*paths}
    taken_out = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
    have = {os.path.basename(path) for path in (*table.file_uris(), *taken_out)}
    found = {path for path in paths if name_in_table(path) in have}
    if found:
        tell_kept(name, found)
    return found
