"""Firing times of cron expressions and intervals, also at daylight-saving changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distcommit.app.scheduling.cron_and_interval import Cron, Interval, Moment

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2026, 10, 25, tzinfo=BERLIN)
"""Days on which 02:00 to 03:00 is skipped, and repeated."""
DAY_MS = 24 * 3600 * 1000


def ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def firings(expression: str, since: datetime, hours: float, zone: str = "Europe/Berlin") -> list[str]:
    """Return all firings within so many hours, with the clock's daylight-saving offset."""
    timetable, moments = Cron(expression, zone), []
    time = ms(since) - 1
    while (time := timetable.after(time)) < ms(since) + hours * 3_600_000:
        moments.append(datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).strftime("%H:%M %Z"))
    return moments


def test_cron_expression_is_in_utc_unless_a_zone_is_named() -> None:
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
def test_firings_in_the_skipped_and_the_repeated_hour(expression: str, spring: list[str], autumn: list[str]) -> None:
    assert firings(expression, SPRING + timedelta(hours=1), 2.5) == spring
    assert firings(expression, AUTUMN + timedelta(hours=1), 4) == autumn


def test_time_of_day_does_not_fire_again_in_the_repeated_hour() -> None:
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
def test_next_firing_is_later_and_does_not_depend_on_queries_in_between(
    expression: str, zone: str, time: int, part: float
) -> None:
    timetable = Cron(expression, zone)
    next_firing = timetable.after(time)
    assert next_firing > time
    between = time + int(part * (next_firing - time))
    assert timetable.after(between) == next_firing
    assert timetable.after(next_firing) > next_firing


def clock_changes(zone: str, year: int) -> list[int]:
    """Return the moments of a year at which a zone's clocks change, in seconds since 1970."""
    here, changes = ZoneInfo(zone), list[int]()

    def offset(second: int) -> timedelta | None:
        return datetime.fromtimestamp(second, here).utcoffset()

    first = round(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    for day in range(first, first + 366 * 86400, 86400):
        before, after = day, day + 86400
        if offset(before) == offset(after):
            continue
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if offset(middle) == offset(day) else (before, middle)
        changes.append(after)
    return changes


def expected(since: int, until: int, zone: str, minutes: set[int], hours: set[int], *, once: bool) -> list[int]:
    """Return the firings by a clock read every half minute: whenever it shows a matching time or, with `once`, when it
    first shows that time or a later one.
    """
    here, minute, moments = ZoneInfo(zone), timedelta(minutes=1), list[int]()
    reached = datetime.fromtimestamp(since, here).replace(tzinfo=None) - minute
    for second in range(since, until, 30):
        shown = datetime.fromtimestamp(second, here).replace(tzinfo=None)
        times = [shown] if shown.second == 0 else []
        if once:
            times = [reached + minute * by for by in range(1, int((shown - reached) / minute) + 1)]
            reached = max(reached, *times) if times else reached
        if any(time.minute in minutes and time.hour in hours for time in times):
            moments.append(second)
    return moments


def values(field: str, end: int) -> set[int]:
    if field.startswith("*"):
        return set(range(0, end, int(field[2:] or 1)))
    ranges = (part.partition("-") for part in field.split(","))
    return {value for first, _, last in ranges for value in range(int(first), int(last or first) + 1)}


@pytest.mark.thorough
@given(
    minute=st.sampled_from(["0", "5", "15", "45", "59", "7,37", "*", "*/20", "*/7"]),
    hour=st.sampled_from(["*", "*/2", "*/5", "*/6", "0", "2", "23", "1-3", "0,12", "22-23"]),
    zone=st.sampled_from(sorted(available_timezones())),
    year=st.integers(1973, 2037),
)
@example(minute="5", hour="*/6", zone="Australia/Lord_Howe", year=2026)  # half an hour
@example(minute="45", hour="*", zone="Australia/Lord_Howe", year=2026)
@example(minute="*/20", hour="2", zone="Antarctica/Troll", year=2026)  # two hours
@example(minute="5", hour="*/6", zone="America/Santiago", year=2026)  # at midnight
@example(minute="0", hour="0", zone="America/Santiago", year=2026)
@example(minute="15", hour="*/2", zone="Africa/Casablanca", year=2026)
@example(minute="7,37", hour="*", zone="Asia/Kathmandu", year=1986)  # a permanent change by a quarter of an hour
@example(minute="5", hour="*/6", zone="America/Caracas", year=2016)
@example(minute="59", hour="*/5", zone="Asia/Pyongyang", year=2015)
@example(minute="7,37", hour="0,12", zone="Pacific/Apia", year=2011)  # a day
def test_each_firing_comes_once_and_in_order_at_any_clock_change(minute: str, hour: str, zone: str, year: int) -> None:
    timetable = Cron(f"{minute} {hour} * * *", zone)
    of_day = not minute.startswith("*") and not hour.startswith("*")
    for change in clock_changes(zone, year):
        since, until = change - 26 * 3600, change + 26 * 3600
        firings_so_far, time = list[int](), since * 1000 - 1
        while (time := timetable.after(time)) < until * 1000:
            firings_so_far.append(time // 1000)
        assert firings_so_far == expected(since, until, zone, values(minute, 60), values(hour, 24), once=of_day)


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
def test_invalid_cron_expression_is_reported(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match="is not a cron expression") as caught:
        Cron(expression)
    assert why in str(caught.value)
    assert repr(expression) in str(caught.value)


@pytest.mark.parametrize("zone", ["Mars/Phobos", "", "../../etc/passwd", "Europe"])
def test_unknown_time_zone_is_reported(zone: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        Cron("* * * * *", zone)


def test_missed_cron_firing_is_determined_by_the_last_run() -> None:
    timetable, now = Cron("0 2 * * *"), datetime(2026, 7, 3, 12, tzinfo=UTC)
    moment = Moment(ms(now), 5)
    assert timetable.first(moment, None) == ms(datetime(2026, 7, 4, 2, tzinfo=UTC)), "the job has never run"
    assert timetable.first(moment, ms(now) - DAY_MS) == ms(datetime(2026, 7, 3, 2, tzinfo=UTC))
    assert timetable.first(moment, ms(now) - 3_600_000) == ms(datetime(2026, 7, 4, 2, tzinfo=UTC))
    assert timetable.first(moment, ms(now) + 9 * DAY_MS) == ms(datetime(2026, 7, 4, 2, tzinfo=UTC)), (
        "recorded by a wrong clock"
    )


@pytest.mark.parametrize(
    ("last_ms", "waits"), [(None, 0), (1_000_000, 30_000), (990_000, 20_000), (1_000, 0), (9_000_000, 30_000)]
)
def test_interval_fires_at_once_or_that_long_after_the_last_run(last_ms: int | None, waits: int) -> None:
    assert Interval(30_000).first(Moment(1_000_000, 77), last_ms) == 77 + waits
