"""The section `freshness` of a job file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from distcommit.core.records.freshness_targets import Freshness
from distcommit.core.support.setting_checks import check_patterns
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_SHARE = 0.5
"""How long a task continues to read a backlogged dataset, as a part of the smallest freshness target."""


def _seconds(value: Any) -> Any:
    """Return `30s`, `5m` or `1h` in seconds; numbers are seconds."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise SettingError("must be a duration such as 30s, 5m or 1h, or a number of seconds")
    return float(match[1]) * _UNITS[match[2]]


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0.1, le=366 * 86400)]


class TargetSettings(SettingsModel):
    """A target of some datasets.

    Attributes:
        datasets: regular expressions that match their whole names.
        target: as `freshness.target`.
    """

    datasets: tuple[str, ...] = Field(min_length=1)
    target: Seconds

    _compile = field_validator("datasets")(check_patterns)


class FreshnessSettings(SettingsModel):
    """How soon new records of the source must be visible. Datasets that are furthest behind their target are read
    first, and one with much to read after the others. `freshness: 30s` is short for a target of all datasets.

    Attributes:
        target: from a record's appearance in the source to its visibility: `30s`, `5m`, `1h`, or seconds. Left out:
            only datasets of `targets` have one.
        targets: targets of some datasets, which override `target`; the first match counts.
        records_per_run: how many offsets of one dataset a run reads (sources of type `kafka`). A dataset with more is
            read after the others, and continues in the next run. 0: all.
    """

    target: Seconds | None = None
    targets: tuple[TargetSettings, ...] = ()
    records_per_run: int = Field(default=100_000, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping | BaseModel) else {"target": value}

    @rule
    def _has_target(self) -> Iterator[SettingError]:
        if self.target is None and not self.targets:
            yield SettingError("must have target, or targets of some datasets")

    def freshness(self, *, can_stop: bool) -> Freshness:
        targets = tuple(
            (pattern, target_settings.target)
            for target_settings in self.targets
            for pattern in target_settings.datasets
        )
        found = Freshness(self.target or 0, targets, self.records_per_run)
        return Freshness(
            found.target_s, targets, self.records_per_run, slice_s=found.smallest_s * _SHARE if can_stop else 0
        )
