"""The task checker `freshness`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.construct_settings import TaskCheckerSettings
from distcommit.core.interfaces.constructs import BranchCounts, TaskCheck
from distcommit.schemas.known_columns import find_column

_IN_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Freshness(TaskCheckerSettings):
    """Check that the records of a work unit are not too old.

    A time without a zone is in UTC; a date means its midnight. Future times pass. A work unit whose records have no
    time fails.

    Attributes:
        column: the column of times.
        max_age_s: the greatest age that passes, in seconds.
        of: whether the newest or the oldest time counts.
        record_time: a column of times, such as Kafka's timestamp, whose newest time is the reference of the age.
            Without it the reference is the clock of the executor when the attempt ends.
    """

    type: Literal["freshness"] = "freshness"
    column: str
    max_age_s: float = Field(ge=0, allow_inf_nan=False)
    of: Literal["newest", "oldest"] = "newest"
    record_time: str | None = None

    def required_columns(self) -> Sequence[str]:
        return (self.column,) if self.record_time is None else (self.column, self.record_time)

    def check_schema(self, schema: pa.Schema) -> None:
        for column in self.required_columns():
            _time_type(schema, column)

    def begin(self) -> TaskCheck:
        return FreshnessCheck(self)


class FreshnessCheck(TaskCheck):
    """State of the check in one attempt: the newest or oldest time so far."""

    def __init__(self, settings: Freshness) -> None:
        self._settings = settings
        self._time: Fraction | None = None
        self._record_time: Fraction | None = None

    def inspect(self, batch: pa.RecordBatch) -> None:
        of, record_time = self._settings.of, self._settings.record_time
        self._time = _extreme(self._time, batch, self._settings.column, of)
        if record_time is not None:
            self._record_time = _extreme(self._record_time, batch, record_time, "newest")

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        required = f"expected the {self._settings.of} {self._settings.column} at most {self._settings.max_age_s:g} s"
        record_time = self._settings.record_time
        required += " old" if record_time is None else f" before the newest {record_time}"
        if not counts.written:
            return True, f"{required}, found no records"
        now = Fraction(time.time_ns(), 10**9) if record_time is None else self._record_time
        if self._time is None or now is None:
            return False, f"{required}, found no value of {self._settings.column if now is not None else record_time}"
        age = now - self._time
        return age <= Fraction(self._settings.max_age_s), f"{required}, found {float(age):.3f} s"


def _extreme(fraction: Fraction | None, batch: pa.RecordBatch, column: str, of: str) -> Fraction | None:
    """Return the newest or oldest time of this batch and those before (`fraction`), in seconds since 1970, or None."""
    kind = _time_type(batch.schema, column)
    ends = pc.min_max(batch.column(column))
    end = ends["max" if of == "newest" else "min"]
    if not end.is_valid:
        return fraction
    if pa.types.is_date32(kind):
        at = Fraction(end.value * 86_400)
    else:
        at = Fraction(end.value, _IN_A_SECOND[getattr(kind, "unit", "ms")])
    return at if fraction is None else max(fraction, at) if of == "newest" else min(fraction, at)


def _time_type(schema: pa.Schema, column: str) -> pa.DataType:
    return find_column(schema, column, "freshness", _is_time, "timestamps or dates").type


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
