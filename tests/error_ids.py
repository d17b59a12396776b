"""Check that each error created in a test has an id of the catalogue, and that the entry names its class."""

from __future__ import annotations

from functools import wraps
from typing import Any

from distcommit.core.error_catalogue import ERRORS
from distcommit.core.errors import DistcommitError

_wrong: set[str] = set()
_create = DistcommitError.__init__


def watch_errors() -> None:
    """Check the id of each error that this process creates from now on."""

    @wraps(_create)
    def create(error: DistcommitError, *args: Any, **fields: Any) -> None:
        _create(error, *args, **fields)
        entry = ERRORS.get(error.id)
        if entry is None or entry.error not in [kind.__name__ for kind in type(error).__mro__]:
            _wrong.add(f"{error.id} of a {type(error).__name__}: {error.failure}")

    setattr(DistcommitError, "__init__", create)  # noqa: B010 - mypy rejects an assignment of a method


def take_wrong_ids() -> list[str]:
    """Return the errors with a wrong id since the last call."""
    wrong = sorted(_wrong)
    _wrong.clear()
    return wrong
