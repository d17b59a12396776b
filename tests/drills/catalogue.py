"""Every remedy that the product can print, by the id of its problem or error."""

from __future__ import annotations

import re
from functools import cache

from distcommit.app.inspection.problems.catalogue import PROBLEMS
from distcommit.cli.main import commands_by_name
from distcommit.core.error_catalogue import ERRORS

GAP = "…"
"""Placeholder in a text for its variable parts."""
_RESOLVING = re.compile(
    "recover |store (rebuild|rebucket) |dataset (release|set-watermark|quarantine|reprocess) "
    "|migrate import-watermarks "
)
"""Commands that change the state of a job so that it continues."""
WITHOUT_DRILL = {
    "COMMIT_REJECTED": "only a custom sink reports it; its remedy is that of STEP_LOST",
    "DATASET_NOT_PLANNED": "the class's own id: each raise site has a more specific one",
    "MERGED_FILE_MISSING": "a note of the run reports it, not status; the rebuild is tested with the compactions",
    "SOURCE_RECREATED": "its command is the one of KAFKA_POSITION_MISSING",
}
"""Errors whose remedy no drill types, with the reason."""


@cache
def ids_with_remedies() -> frozenset[str]:
    """Return the ids of all problems, and of the errors that a command on the job resolves."""
    return frozenset({*PROBLEMS, *(entry.id for entry in ERRORS.values() if _RESOLVING.match(entry.command))})


@cache
def command_names() -> list[str]:
    """Return the names of all commands, each after its group's."""
    return sorted(commands_by_name())
