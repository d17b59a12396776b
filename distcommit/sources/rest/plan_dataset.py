"""Planner of one dataset: times are read up to the present, other values up to the last record."""

from __future__ import annotations

from datetime import datetime

from distcommit.core.errors import SourceError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark, at_or_past
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.sources.rest.watermark_field import ROWS, WatermarkField
from distcommit.sources.watermark_column import PARTITION, end_of_retry

_NOT_KNOWN = (
    "it is not known how far it was read: its watermark was made from published files, which number records and do not"
    " say it"
)


def plan_dataset(
    urn: str, field: WatermarkField, state: DatasetState | None, retried_end: Watermark | None, now: datetime
) -> DatasetPlan | None:
    """Return the plan of one dataset; None if it can't have new records. No request is sent.

    Args:
        retried_end: end of a failed range that is read before newer records. It is ignored unless the field has times,
            because other ranges have no planned end.
        now: the present time, with a zone.

    Raises:
        SourceError: if the stored position is not valid for the field.
    """
    stored = state.watermark if state else None
    positions = stored.positions if stored else {}
    low = _stored(urn, field, stored) if stored and positions else field.beginning
    high = field.end_of_plan(now)
    if high is not None and not at_or_past(high, low):
        high = low
    if high is not None:
        high = end_of_retry(retried_end, field.incarnation, low, high)
    if positions and high == low:
        return None
    rows = positions.get(ROWS, 0)
    begin = Watermark({PARTITION: low, ROWS: rows}, field.incarnation)
    end = Watermark({} if high is None else {PARTITION: high}, field.incarnation)
    new = {partition: at for partition, at in begin.positions.items() if partition not in positions}
    unit = WorkUnit("", urn, begin, end, 1)
    return DatasetPlan(urn, stored, Watermark(new, field.incarnation), (unit,))


def _stored(urn: str, field: WatermarkField, stored: Watermark) -> Position:
    position = stored.positions.get(PARTITION)
    numbers = {name: at for name, at in stored.positions.items() if name != PARTITION}
    fits = field.is_position(position) and is_count(numbers.pop(ROWS, 0)) and not numbers
    if fits and position is not None and stored.incarnation in ("", field.incarnation):
        return position
    raise SourceError(
        "the stored position is not one of the watermark field",
        id="STORED_POSITION_FOREIGN",
        dataset=urn,
        expected=f"a position of {field.incarnation}",
        found=_NOT_KNOWN if position is None else f"{stored.positions} of {stored.incarnation or 'an unnamed field'}",
        todo="set the field that it was read by, or set its watermark (distcommit dataset set-watermark; null reads"
        " the dataset again from the start)",
    )


def is_count(position: Position) -> bool:
    return type(position) is int and position >= 0
