"""Errors of foreign code: libraries, native extensions, custom classes.

A panic of a Rust extension raises a BaseException that `except Exception` does not catch, and would end the whole task.
`foreign_errors` converts the panic into an Exception that fails one record, one schema or one work unit.
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

    KeyboardInterrupt, SystemExit and GeneratorExit pass, because they cancel or end the process. Errors that distcommit
    defines pass, because tests raise them to simulate a crash.

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
