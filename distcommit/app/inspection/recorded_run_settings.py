"""The settings of a recorded run, and how they differ from those of another run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from distcommit.app.inspection.recorded_runs import read_run
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.clock import Clock
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.stores.state.job_store import JobStore


class SettingRow(msgspec.Struct, frozen=True):
    """One setting of a run."""

    setting: str
    """Name of the setting with its sections, such as `source.topics` or `converters.0.type`."""
    value: Any
    """Value in the run; None if the run did not have the setting."""
    compared_value: Any = None
    """Value in the compared run; None if that run did not have the setting, or without a comparison."""


class RunSettingsResult(NotebookTable, msgspec.Struct, frozen=True):
    """The settings that a run ran with, without secrets.

    Attributes:
        job: name of the job.
        epoch: epoch of the run.
        compared_epoch: epoch of the compared run; 0 without a comparison.
        settings: all settings of the run; with a comparison, the settings that differ.
    """

    job: str
    epoch: int
    compared_epoch: int
    settings: list[SettingRow]


def read_run_settings(store: JobStore, epoch: int, clock: Clock, *, compared_epoch: int = 0) -> RunSettingsResult:
    """Return the settings of a run, or their differences from the run of `compared_epoch`.

    Raises:
        ConfigurationError: if a run is not recorded, or its settings are not.
    """
    own = _settings_of(store, epoch, clock)
    if not compared_epoch:
        return RunSettingsResult(store.job, epoch, 0, [SettingRow(name, value) for name, value in own.items()])
    other = _settings_of(store, compared_epoch, clock)
    names = [name for name in {**own, **other} if own.get(name) != other.get(name)]
    rows = [SettingRow(name, own.get(name), other.get(name)) for name in names]
    return RunSettingsResult(store.job, epoch, compared_epoch, rows)


def _settings_of(store: JobStore, epoch: int, clock: Clock) -> dict[str, Any]:
    beginning = read_run(store, epoch, clock).beginning
    if beginning is None:
        raise ConfigurationError(
            "the settings of the run are not recorded",
            id="RUN_UNKNOWN",
            job=store.job,
            epoch=epoch,
            found="no readable record of the run's start",
            todo="choose a run of `distcommit runs` that has a start time",
        )
    return dict(_flat(beginning.facts.config, ""))


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each value in nested sections with its dotted name. A list without sections is one value."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{name}.{index}")
    else:
        yield name, value
