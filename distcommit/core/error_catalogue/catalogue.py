"""All entries by id."""

from __future__ import annotations

from collections.abc import Mapping

from distcommit.core.error_catalogue import (
    commands,
    commits,
    readers,
    records,
    runs,
    settings,
    sinks,
    sources,
    stored_data,
    stores,
)
from distcommit.core.error_catalogue.entry import ErrorEntry

ERRORS: Mapping[str, ErrorEntry] = {
    entry.id: entry
    for module in (settings, runs, stores, stored_data, commits, commands, records, sources, sinks, readers)
    for entry in module.ENTRIES
}
