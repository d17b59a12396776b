"""Errors of foreign code: libraries, native extensions, custom classes.

A panic of a Rust extension raises a BaseException that no `except Exception` catches. It would end the whole task with
all its datasets. `foreign_errors` turns it into an Exception that fails one record, one schema or one work unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.core.errors import error_text

_OWN = "distcommit."


class ForeignError(Exception):
    """An error of a library or custom class that was not an Exception, such as a panic of native code."""


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Convert errors that are not Exceptions into a ForeignError.

    KeyboardInterrupt, SystemExit and GeneratorExit pass, because a cancellation and the end of a process are not
    errors. Errors that distcommit defines pass as well: they simulate the death of the process.

    Raises:
        ForeignError: in place of a panic, with its class and text.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if type(error).__module__.startswith(_OWN):
            raise
        raise ForeignError(error_text(error)) from None
