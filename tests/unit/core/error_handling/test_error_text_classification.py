"""Classification of stored error texts: outage or dataset failure, and whether a retry may help."""

from __future__ import annotations

import errno

import pytest

from distcommit.core.error_handling.error_text_classification import is_outage, is_permanent
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
    """An outage error of a custom source."""


@pytest.mark.parametrize(
    "error",
    [
        TransientError("x"),
        SourceUnavailableError("x"),
        SinkUnavailableError("x"),
        OwnOutageError("x"),
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EAGAIN, "the store is throttled"),
        OSError(errno.EACCES, "no permission", "/staging/run"),
        ConnectionResetError("x"),
        TimeoutError("x"),
    ],
)
def test_outage_is_recognized_by_its_kind(error: Exception) -> None:
    assert is_outage(error_text(error))
    assert not is_permanent(error_text(error))


@pytest.mark.parametrize(
    "error", [SourceError("x"), CorruptError("x"), ValueError("x"), FileNotFoundError("x"), KeyError(1)]
)
def test_any_other_recorded_error_is_the_dataset_s_own(error: Exception) -> None:
    for text in (error_text(error), f"work unit 7 is read up to Watermark({{'0': 5}}) only: {error_text(error)}"):
        assert not is_outage(text)
        assert not is_permanent(text)


@pytest.mark.parametrize("error", [ConfigurationError("x"), RecordError("x"), QualityError("x")])
def test_non_retryable_error_is_recognized_by_its_kind(error: Exception) -> None:
    assert is_permanent(error_text(error))
    assert not is_outage(error_text(error))


@pytest.mark.parametrize("text", ["", "work unit 7 never finished", "staged files could not be synced: full"])
def test_failure_without_a_recorded_error_counts_for_no_dataset(text: str) -> None:
    assert is_outage(text)
    assert not is_permanent(text)
