"""Classification of stored error texts, as `core.errors.error_text` writes them, by their ids."""

from __future__ import annotations

import re
from collections.abc import Iterator

from distcommit.core.error_catalogue import ERRORS
from distcommit.core.errors import (
    ConfigurationError,
    QualityError,
    RecordError,
    StuckError,
    TransientError,
    WorkerDiedError,
)

_KIND = re.compile(r"(?:work unit .* only: )?(\w+): ", re.DOTALL)
"""The id at the beginning of an error text, or a class name for errors of libraries. A prefix may name a work unit."""
_STORAGE = {"BlockingIOError", "OSError", "PermissionError", "TimeoutError"}
"""Class names of errors of a failed storage. A throttled store raises `OSError(EAGAIN)`, which is a BlockingIOError."""


def is_outage(text: str) -> bool:
    """Return whether an outage is the cause: a transient error, a failed storage or connection, or no named error.

    A PermissionError is an outage: it concerns the job's own folders, because built-in sources report a missing
    permission at the source as a SourceError.
    """
    name = _class_name(text)
    return not name or name in {*_STORAGE, *_names(TransientError), *_names(ConnectionError)}


def is_permanent(text: str) -> bool:
    """Return whether a retry would fail the same way, because the job's settings, the records or source files are
    wrong."""
    permanent = (ConfigurationError, QualityError, RecordError)
    match = _KIND.match(text)
    is_damaged = match is not None and match[1] == "SOURCE_FILES_UNREADABLE"
    return is_damaged or any(_class_name(text) in _names(kind) for kind in permanent)


def has_killed_its_worker(text: str) -> bool:
    """Return whether reading a work unit killed the task's worker: a construct did not return, or the worker died."""
    return _class_name(text) in {StuckError.__name__, WorkerDiedError.__name__}


def is_worker_death(text: str) -> bool:
    """Return whether a worker died twice while it read a work unit."""
    return _class_name(text) == WorkerDiedError.__name__


def is_record(text: str, subject: str) -> bool:
    """Return whether a record failed its work unit with an error that begins with `subject`."""
    match = _KIND.match(text)
    return match is not None and _class_name(text) in _names(RecordError) and text[match.end() :].startswith(subject)


def _class_name(text: str) -> str:
    """Return the name of the error's class; empty if the text does not begin with an error."""
    match = _KIND.match(text)
    if match is None:
        return ""
    return ERRORS[match[1]].error if match[1] in ERRORS else match[1]


def _names(kind: type[BaseException]) -> Iterator[str]:
    """Yield the names and ids of an error class and of all its subclasses."""
    yield kind.__name__
    if "id" in vars(kind):
        yield vars(kind)["id"]
    for below in kind.__subclasses__():
        yield from _names(below)
