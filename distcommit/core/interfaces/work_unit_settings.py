"""Settings of constructs in work units, which take precedence over those of the job file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from distcommit.core.errors import SourceError
from distcommit.core.support.decoding import from_json
from distcommit.core.work_units import WorkUnit

SETTINGS = "settings"
"""Property of a work unit that holds settings of constructs as JSON."""


def with_settings(unit: WorkUnit, settings: Mapping[str, Mapping[str, Any]]) -> WorkUnit:
    """Return the work unit with settings of constructs as a property.

    Records that are rejected with these settings are processed again (`dataset reprocess`) with those of the job file.

    Args:
        unit: the work unit.
        settings: plain data without `${`, by construct and setting; for a custom class, its options. Constructs are
            named as in the run's counts: `cast`, `json#2`, `fork`, or `lake.cast` behind a fork; task checkers like
            `main.task_checkers.row_count`.
    """
    return replace(unit, properties={**unit.properties, SETTINGS: msgspec.json.encode(settings).decode()})


def settings_of(unit: WorkUnit) -> dict[str, dict[str, Any]]:
    """Return the work unit's settings by construct.

    Raises:
        SourceError: if `with_settings` did not write the property.
    """
    try:
        return from_json(unit.properties.get(SETTINGS, "{}"), dict[str, dict[str, Any]])
    except msgspec.DecodeError as error:
        raise invalid_settings(
            unit, SETTINGS, "settings by construct, as `with_settings` writes them", error
        ) from error


def invalid_settings(unit: WorkUnit, construct: str, expected: str, found: object) -> SourceError:
    """Return the error for a work unit whose settings a construct does not accept."""
    return SourceError(
        "the settings of a work unit are invalid",
        id="SOURCE_PLAN_INVALID",
        dataset=unit.dataset_urn,
        work_unit=unit.work_unit_id,
        construct=construct,
        expected=expected,
        found=str(found),
        todo="correct the source's plan",
    )
