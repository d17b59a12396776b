"""Errors of code that is not distcommit's own: libraries, native extensions, custom classes.

A Rust extension that panics raises what no `except Exception` catches. It would end the whole task, with every dataset
that the task reads. Here it becomes an Exception, which belongs to one record, one schema or one work unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.core.errors import error_text

_OWN = "distcommit."


class ForeignError(Exception):
    """A library or a custom class raised an error that is not an Exception, such as a panic of native code."""


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Raise an error that is not an Exception as a ForeignError.

    KeyboardInterrupt, SystemExit and GeneratorExit pass, because a cancellation and the end of a process are not
    errors. Errors that distcommit defines pass as well: they simulate the death of the process.

    Raises:
        ForeignError: in place of a panic, with its kind and text.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if type(error).__module__.startswith(_OWN):
            raise
        raise ForeignError(error_text(error)) from None
