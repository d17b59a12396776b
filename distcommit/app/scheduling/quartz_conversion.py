"""Conversion of Quartz cron expressions, which Gobblin's scheduler uses, to timetables."""

from __future__ import annotations

import re

_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LAST = {"minute": 59, "hour": 23, "day of the month": 31, "month": 12}
_STEP = re.compile(r"(\d+)/(\d+)")


def from_quartz(expression: str) -> dict[str, str | float]:
    """Convert a Quartz expression to schedule settings: `cron` with five fields, or `interval_s` for a period of
    seconds.

    Args:
        expression: second, minute, hour, day of the month, month, day of the week, and optionally a year.

    Raises:
        ValueError: naming the part that cannot be converted.
    """
    fields = expression.upper().split()
    if len(fields) not in (6, 7):
        raise ValueError(f"a Quartz expression must have six or seven fields, found {len(fields)}")
    if fields[6:] not in ([], ["*"]):
        raise ValueError(f"a year is not supported, found {fields[6]}")
    second, minute, hour, day, month, weekday = fields[:6]
    if "?" not in (day, weekday):
        raise ValueError("the day of the month or the day of the week must be ?")
    if not second.isdecimal():
        every = re.fullmatch(r"(?:\*|0)(?:/(\d+))?", second)
        remainder = {minute, hour, day, month, weekday}
        if every is None or remainder - {"*", "?"} or not int(every[1] or 1) or 60 % int(every[1] or 1):
            raise ValueError(f"the second must be a number, or a divisor of 60 with all other fields *, found {second}")
        return {"interval_s": float(every[1] or 1)}
    translated = [_field(text, name) for text, name in zip((minute, hour, day, month), _LAST, strict=True)]
    return {"cron": " ".join([*translated, _weekday(weekday)])}


def _field(text: str, name: str) -> str:
    if name == "day of the month" and text in ("L", "LW"):
        return text
    parts = []
    for part in text.replace("?", "*").split(","):
        if (step := _STEP.fullmatch(part)) is not None:
            is_complete = int(step[1]) == (0 if name in ("minute", "hour") else 1)
            parts.append(f"*/{step[2]}" if is_complete else f"{step[1]}-{_LAST[name]}/{step[2]}")
        elif re.search(r"[LW#]", part) and name != "month":
            raise ValueError(f"{part} as {name} is not supported")
        else:
            parts.append(part)
    return ",".join(parts)


def _weekday(text: str) -> str:
    if re.search(r"[L#/]", text):
        raise ValueError(f"{text} as day of the week is not supported")
    named = re.sub(r"\d+", lambda number: _day(int(number[0])), text.replace("?", "*"))
    if (span := re.fullmatch(r"(\w+)-(\w+)", named)) is not None and span[1] in _DAYS and span[2] in _DAYS:
        first, last = _DAYS.index(span[1]), _DAYS.index(span[2])
        days = range(first, last + 1) if first <= last else [*range(first, 7), *range(last + 1)]
        return ",".join(str(day) for day in days)
    return named


def _day(number: int) -> str:
    if not 1 <= number <= len(_DAYS):
        raise ValueError(f"a day of the week must be 1 to 7, found {number}")
    return _DAYS[number - 1]
