"""Timestamps of Kafka records, including records without one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE

from distcommit.sources.kafka.client import timestamps

CREATE, APPEND, NONE = TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE


def times_of(given: Sequence[tuple[int, int]]) -> list[tuple[Any, Any]]:
    times, kinds = timestamps(given)
    return list(zip(times.to_pylist(), kinds.to_pylist(), strict=True))


SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("kind", [CREATE, APPEND, NONE])
def test_record_without_a_timestamp_has_none(kind: int) -> None:
    assert times_of([(kind, -1), (kind, -1)]) == [(None, None)] * 2


def test_record_without_a_timestamp_does_not_change_the_others() -> None:
    assert times_of([(CREATE, 1000), (CREATE, -1), (APPEND, 1000)]) == [
        (SECOND, "create"),
        (None, None),
        (SECOND, "append"),
    ]


def test_times_before_1970_are_kept() -> None:
    assert times_of([(CREATE, -2000)]) == [(datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC), "create")]
