"""When cron expressions and intervals fire, also where clocks are changed for summer time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.scheduling.timetables import Cron, Interval, Moment

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2026, 10, 25, tzinfo=BERLIN)
"""Days on which 02:00 to 03:00 is passed over, and comes twice."""
DAY_MS = 24 * 3600 * 1000


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def firings(expression: str, since: datetime, hours: float, zone: str = "Europe/Berlin") -> list[str]:
    """All of so many hours, with what the clock says of summer time."""
    timetable, found = Cron(expression, zone), []
    time = ms(since) - 1
    while (time := timetable.after(time)) < ms(since) + hours * 3_600_000:
        found.append(datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).strftime("%H:%M %Z"))
    return found


def test_a_cron_expression_is_of_utc_unless_a_zone_is_named() -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert Cron("0 13 * * *").after(ms(noon)) == ms(noon + timedelta(hours=1))
    assert Cron("0 15 * * *", "Europe/Berlin").after(ms(noon)) == ms(noon + timedelta(hours=1))


@pytest.mark.parametrize(
    ("expression", "spring", "autumn"),
    [
        ("30 2 * * *", ["03:00 CEST"], ["02:30 CEST"]),
        ("0,20,40 2 * * *", ["03:00 CEST"], ["02:00 CEST", "02:20 CEST", "02:40 CEST"]),
        ("30 1-3 * * *", ["01:30 CET", "03:00 CEST", "03:30 CEST"], ["01:30 CEST", "02:30 CEST", "03:30 CET"]),
        ("30 * * * *", ["01:30 CET", "03:30 CEST"], ["01:30 CEST", "02:30 CEST", "02:30 CET", "03:30 CET"]),
        ("*/30 2 * * *", [], ["02:00 CEST", "02:30 CEST", "02:00 CET", "02:30 CET"]),
    ],
)
def test_the_hour_that_clocks_pass_over_and_the_one_they_have_twice(
    expression: str, spring: list[str], autumn: list[str]
) -> None:
    assert firings(expression, SPRING + timedelta(hours=1), 2.5) == spring
    assert firings(expression, AUTUMN + timedelta(hours=1), 4) == autumn


def test_in_the_second_of_two_hours_a_time_of_day_has_been() -> None:
    second = datetime(2026, 10, 25, 2, 15, tzinfo=BERLIN, fold=1)
    assert Cron("30 2 * * *", "Europe/Berlin").after(ms(second)) == ms(datetime(2026, 10, 26, 2, 30, tzinfo=BERLIN))


@given(
    expression=st.sampled_from(
        ["*/7 * * * *", "30 2 * * *", "0 0 * * *", "15 1-4 * * SUN", "0 3 L * *", "5 */2 1 * *"]
    ),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "America/Santiago"]),
    time=st.integers(ms(datetime(2026, 1, 1, tzinfo=UTC)), ms(datetime(2028, 1, 1, tzinfo=UTC))),
    part=st.floats(0, 1, exclude_max=True),
)
def test_what_comes_next_is_later_and_the_same_for_who_asks_in_between(
    expression: str, zone: str, time: int, part: float
) -> None:
    timetable = Cron(expression, zone)
    found = timetable.after(time)
    assert found > time
    between = time + int(part * (found - time))
    assert timetable.after(between) == found
    assert timetable.after(found) > found


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("@daily", "five fields"),
        ("61 * * * *", "bad minute"),
        ("* 25 * * *", "bad hour"),
        ("* * 32 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("every minute or so please", "bad minute"),
    ],
)
def test_what_is_no_cron_expression_is_told(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match="is no cron expression") as caught:
        Cron(expression)
    assert why in str(caught.value)
    assert repr(expression) in str(caught.value)


@pytest.mark.parametrize("zone", ["Mars/Phobos", "", "../../etc/passwd", "Europe"])
def test_an_unknown_time_zone_is_told(zone: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        Cron("* * * * *", zone)


def test_a_cron_expression_that_was_missed_is_told_by_the_last_run() -> None:
    timetable, now = Cron("0 2 * * *"), datetime(2026, 7, 3, 12, tzinfo=UTC)
    moment = Moment(ms(now), 5)
    assert timetable.first(moment, None) == ms(datetime(2026, 7, 4, 2, tzinfo=UTC)), "it has never run"
    assert timetable.first(moment, ms(now) - DAY_MS) == ms(datetime(2026, 7, 3, 2, tzinfo=UTC))
    assert timetable.first(moment, ms(now) - 3_600_000) == ms(datetime(2026, 7, 4, 2, tzinfo=UTC))
    assert timetable.first(moment, ms(now) + 9 * DAY_MS) == ms(datetime(2026, 7, 4, 2, tzinfo=UTC)), "by a wrong clock"


@pytest.mark.parametrize(
    ("last_ms", "waits"), [(None, 0), (1_000_000, 30_000), (990_000, 20_000), (1_000, 0), (9_000_000, 30_000)]
)
def test_an_interval_begins_at_once_or_as_long_after_the_last_run(last_ms: int | None, waits: int) -> None:
    assert Interval(30_000).first(Moment(1_000_000, 77), last_ms) == 77 + waits
