"""What the stored text of an error tells: whose fault it is, and whether trying again may help."""

from __future__ import annotations

import errno

import pytest

from distcommit.core.error_kinds import is_outage, is_permanent
from distcommit.core.errors import (
    ConfigurationError,
    CorruptError,
    QualityError,
    RecordError,
    SinkUnavailableError,
    SourceError,
    SourceUnavailableError,
    TransientError,
    error_text,
)


class OwnOutageError(TransientError):
    """As a source of one's own may have."""


@pytest.mark.parametrize(
    "error",
    [
        TransientError("x"),
        SourceUnavailableError("x"),
        SinkUnavailableError("x"),
        OwnOutageError("x"),
        OSError(errno.ENOSPC, "full"),
        ConnectionResetError("x"),
        TimeoutError("x"),
    ],
)
def test_an_outage_is_told_by_its_kind(error: Exception) -> None:
    assert is_outage(error_text(error))
    assert not is_permanent(error_text(error))


@pytest.mark.parametrize(
    "error", [SourceError("x"), CorruptError("x"), ValueError("x"), FileNotFoundError("x"), KeyError(1)]
)
def test_anything_else_that_is_told_is_the_datasets_own(error: Exception) -> None:
    for text in (error_text(error), f"work unit 7 is read up to Watermark({{'0': 5}}) only: {error_text(error)}"):
        assert not is_outage(text)
        assert not is_permanent(text)


@pytest.mark.parametrize("error", [ConfigurationError("x"), RecordError("x"), QualityError("x")])
def test_what_would_fail_again_is_told_by_its_kind(error: Exception) -> None:
    assert is_permanent(error_text(error))
    assert not is_outage(error_text(error))


@pytest.mark.parametrize("text", ["", "work unit 7 never finished", "staged files could not be synced: full"])
def test_what_no_attempt_has_told_is_nobodys_fault(text: str) -> None:
    assert is_outage(text)
    assert not is_permanent(text)
