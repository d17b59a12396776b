"""Quartz cron expressions: the converted expression fires at the same times."""

from __future__ import annotations

import pytest

from distcommit.app.scheduling.cron_and_interval import Cron
from distcommit.app.scheduling.quartz_conversion import from_quartz


@pytest.mark.parametrize(
    ("quartz", "ours"),
    [
        ("0 0/2 * * * ?", "*/2 * * * *"),
        ("0 5/10 2/6 ? * MON-FRI", "5-59/10 2-23/6 * * 1,2,3,4,5"),
        ("0 0 12 ? * 2-6", "0 12 * * 1,2,3,4,5"),
        ("0 0 12 ? * 1,7", "0 12 * * SUN,SAT"),
        ("0 0 0 ? * 6-1", "0 0 * * 5,6,0"),
        ("0 0 0 L * ?", "0 0 L * *"),
        ("15 0 0 1/3 JAN,JUL ? *", "0 0 */3 JAN,JUL *"),
    ],
)
def test_converted_expression_fires_at_the_same_times(quartz: str, ours: str) -> None:
    assert from_quartz(quartz) == {"cron": ours}
    Cron(ours)


def test_expression_every_so_many_seconds_becomes_an_interval() -> None:
    assert from_quartz("0/30 * * * * ?") == {"interval_s": 30}
    assert from_quartz("* * * * * ?") == {"interval_s": 1}


@pytest.mark.parametrize(
    ("quartz", "why"),
    [
        ("0 0 * * *", "six or seven fields"),
        ("0 0 0 1 1 ? 2030", "a year is not supported"),
        ("0/7 * * * * ?", "divisor of 60"),
        ("0/0 * * * * ?", "divisor of 60"),
        ("0/30 5 * * * ?", "divisor of 60"),
        ("0 0 0 15W * ?", "15W"),
        ("0 0 0 ? * 6#3", "6#3"),
        ("0 0 0 ? * 0", "1 to 7"),
        ("0 0 0 1 * 2", r"must be \?"),
    ],
)
def test_expression_without_counterpart_is_reported(quartz: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_quartz(quartz)
