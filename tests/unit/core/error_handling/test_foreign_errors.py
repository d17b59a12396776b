"""Exceptions that do not derive from Exception, such as panics of native code."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from distcommit.core.error_handling.foreign_errors import ForeignError, foreign_errors
from distcommit.testing.fakes.faulty_calls import Crashed


class Panic(BaseException):
    """A panic, as a Rust extension raises it."""


@pytest.mark.parametrize("error", [Panic("index out of bounds"), asyncio.CancelledError("index out of bounds")])
def test_panic_becomes_an_exception_that_spark_can_carry(error: BaseException) -> None:
    with pytest.raises(ForeignError, match="index out of bounds") as raised, foreign_errors():
        raise error
    assert type(error).__name__ in str(pickle.loads(pickle.dumps(raised.value)))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError, Crashed])
def test_cancellations_exits_and_exceptions_pass_unchanged(kind: type[BaseException]) -> None:
    with pytest.raises(kind), foreign_errors():
        raise kind
