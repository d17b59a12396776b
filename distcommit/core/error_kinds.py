"""What the stored text of an error (`core.errors.error_text`) tells of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from distcommit.core.errors import ConfigurationError, QualityError, RecordError, StuckError, TransientError

_KIND = re.compile(r"(?:work unit .* only: )?(\w+): ", re.DOTALL)
"""Where a part of a work unit is committed, that is told before the error."""


def is_outage(text: str) -> bool:
    """Whether something else than the data, or the source's program, is to blame: a transient error, storage or a
    connection that fails, or no report at all."""
    found = _KIND.match(text)
    return found is None or found[1] in {"OSError", *_names(TransientError), *_names(ConnectionError), "TimeoutError"}


def is_permanent(text: str) -> bool:
    """Whether the same would come of another attempt at once: the job's settings, or the records themselves, are to
    blame."""
    found = _KIND.match(text)
    permanent = (ConfigurationError, QualityError, RecordError)
    return found is not None and any(found[1] in _names(kind) for kind in permanent)


def has_ended_its_worker(text: str) -> bool:
    """Whether a construct did not return, so that the worker of its task was ended."""
    found = _KIND.match(text)
    return found is not None and found[1] == StuckError.__name__


def is_record(text: str, what: str) -> bool:
    """Whether a record has failed its work unit, and the error says `what` of it."""
    found = _KIND.match(text)
    return found is not None and found[1] in _names(RecordError) and text[found.end() :].startswith(what)


def _names(kind: type[BaseException]) -> Iterator[str]:
    yield kind.__name__
    for below in kind.__subclasses__():
        yield from _names(below)
