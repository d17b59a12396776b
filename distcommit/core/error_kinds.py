"""Classification of stored error texts, as `core.errors.error_text` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from distcommit.core.errors import (
    ConfigurationError,
    QualityError,
    RecordError,
    StuckError,
    TransientError,
    WorkerDiedError,
)

_KIND = re.compile(r"(?:work unit .* only: )?(\w+): ", re.DOTALL)
"""The error's class name. A prefix names the work unit where only a part of it is committed."""


def is_outage(text: str) -> bool:
    """Return whether the cause lies outside the data and the source's program: a transient error, a failed storage or
    connection, or no report at all."""
    match = _KIND.match(text)
    return match is None or match[1] in {"OSError", *_names(TransientError), *_names(ConnectionError), "TimeoutError"}


def is_permanent(text: str) -> bool:
    """Return whether a retry would fail the same way, because the job's settings or the records are wrong."""
    match = _KIND.match(text)
    permanent = (ConfigurationError, QualityError, RecordError)
    return match is not None and any(match[1] in _names(kind) for kind in permanent)


def has_killed_its_worker(text: str) -> bool:
    """Return whether reading a work unit killed the task's worker: a construct did not return, or the worker died."""
    match = _KIND.match(text)
    return match is not None and match[1] in {StuckError.__name__, WorkerDiedError.__name__}


def is_worker_death(text: str) -> bool:
    """Return whether a worker died twice while it read the work unit."""
    match = _KIND.match(text)
    return match is not None and match[1] == WorkerDiedError.__name__


def is_record(text: str, what: str) -> bool:
    """Return whether a record failed its work unit with an error that begins with `what`."""
    match = _KIND.match(text)
    return match is not None and match[1] in _names(RecordError) and text[match.end() :].startswith(what)


def _names(kind: type[BaseException]) -> Iterator[str]:
    yield kind.__name__
    for below in kind.__subclasses__():
        yield from _names(below)
