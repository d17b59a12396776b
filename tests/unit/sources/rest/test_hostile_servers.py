"""Servers that answer byte by byte, endlessly, or with bombs: each fails its own dataset, and the error names the
bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from distcommit.constructs.registry.registry_client import Registry, RegistrySettings
from distcommit.core.errors import DistcommitError, SourceError, TransientError
from distcommit.fs.response_time_limit import ResponseTimeError, call_within
from distcommit.sources.rest.source import RestSource
from tests.servers.hostile import bomb, endless_body, hostile, nested_bomb, redirect, slow_body, slow_head, small_bomb
from tests.unit.sources.sql.sql_tables import Reader

WATERMARK = {"field": "i", "type": "integer", "since": "since", "lookback": 0}


def error_of(url: str, **settings: Any) -> DistcommitError:
    base = {"type": "rest", "url": url, "datasets": ["d"], "watermark": WATERMARK, "paging": {"type": "none"}}
    reader = Reader(RestSource.model_validate({**base, "retries": 3, "response_timeout_s": 0.3, **settings}), "d")
    plan = reader.plan()
    assert plan is not None
    with pytest.raises(DistcommitError) as raised:
        reader.read(plan)
    return raised.value


@pytest.mark.parametrize("answering", [slow_body, slow_head])
def test_answer_that_takes_too_long_fails_and_the_error_names_the_bound(answering: Callable[..., None]) -> None:
    begun_s = time.monotonic()
    with hostile(answering) as url:
        error = error_of(url)
    assert isinstance(error, SourceError)
    assert "source.response_timeout_s" in str(error)
    assert str(error).startswith("REST_ANSWER_UNUSABLE: ")
    assert "0.3 s" in str(error)
    assert time.monotonic() - begun_s < 10


@pytest.mark.thorough
@pytest.mark.parametrize("answering", [endless_body, bomb])
def test_body_too_large_after_decompression_fails_and_the_error_names_the_bound(answering: Callable[..., None]) -> None:
    with hostile(answering) as url:
        error = error_of(url, response_timeout_s=60)
    assert "at most 268,435,456 bytes" in str(error)
    assert str(error).startswith("REST_ANSWER_UNUSABLE: ")


def test_body_compressed_more_than_once_fails() -> None:
    with hostile(nested_bomb) as url:
        error = error_of(url, response_timeout_s=60)
    assert "Content-Encoding" in str(error)
    assert "gzip, gzip" in str(error)
    assert str(error).startswith("REST_ANSWER_UNUSABLE: ")


@pytest.mark.parametrize(
    ("answering", "bound"),
    [
        (slow_body, "no complete response within 0.3 s"),
        (slow_head, "no complete response within 0.3 s"),
        (endless_body, "more than 16,777,216 bytes"),
        (small_bomb, "more than 16,777,216 bytes"),
        (redirect, "302"),
    ],
)
def test_hostile_registry_counts_as_unavailable(answering: Callable[..., None], bound: str) -> None:
    with hostile(answering) as url:
        limit_s = 60 if "bytes" in bound else 0.3
        registry = Registry(RegistrySettings(url=url, client={"max.retries": 0}), answer_s=limit_s)
        with pytest.raises(TransientError, match="the schema registry does not answer") as raised:
            registry.schema(1)
        registry.close()
    assert bound in str(raised.value)


def test_call_within_its_time_limit_returns_or_raises_the_call_s_result() -> None:
    assert call_within(10, lambda: 7) == 7
    nothing: dict[str, int] = {}
    with pytest.raises(KeyError):
        call_within(10, lambda: nothing["missing"])
    with pytest.raises(ResponseTimeError, match=r"within 0\.01 s"):
        call_within(0.01, lambda: threading.Event().wait(5))
