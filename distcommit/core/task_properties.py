"""Properties that extractions, converters, checkers and writers record in the task state.

They are data for the next plan: a source sees them with the results of the previous run's work units
(`core.records.previous_run`). So their number and size are limited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from distcommit.core.errors import ConfigurationError, plain_text

PropertyValue = bool | int | float | str
TaskProperties = dict[str, dict[str, PropertyValue]]
"""Properties by part: `source`, the name of a construct, or a branch's writer, as `lake.avro` or `main.writer`."""

MOST_PROPERTIES = 50
"""Maximum number of properties of a work unit."""
MOST_KEY_BYTES = 100
"""Maximum bytes of a property's key."""
MOST_TOTAL_BYTES = 4096
"""Maximum bytes of all properties of a work unit, as JSON."""


class RecordsProperties:
    """Base of the parts of a task that may record properties."""

    def task_properties(self) -> Mapping[str, PropertyValue]:
        """Return the properties to record of the present work unit: texts, numbers and booleans by key.

        All parts together may record at most 50 properties and 4,096 bytes as JSON. Called at the end of each attempt,
        also of a failed one; of a writer only after `prepare_commit`. Converters and row checkers are used for several
        work units, so they must discard the values of the previous one in `begin_work_unit`. The default records none.
        """
        return {}


def with_properties(before: TaskProperties, part: str, properties: Mapping[str, Any]) -> TaskProperties:
    """Check the properties of a part, and return those of the work unit with them.

    Raises:
        ConfigurationError: if a property cannot be stored, or a limit is exceeded.
    """
    if not properties:
        return before
    own = {_checked_key(part, key): _checked_value(part, key, value) for key, value in properties.items()}
    merged = {**before, part: own}
    key, count = next(reversed(own)), sum(map(len, merged.values()))
    if count > MOST_PROPERTIES:
        raise _invalid(part, key, f"at most {MOST_PROPERTIES} properties of a work unit", f"{count}")
    size = len(msgspec.json.encode(merged))
    if size > MOST_TOTAL_BYTES:
        raise _invalid(part, key, f"at most {MOST_TOTAL_BYTES:,} bytes of properties of a work unit", f"{size:,} bytes")
    return merged


def _checked_key(part: str, key: Any) -> str:
    if not isinstance(key, str) or not key:
        raise _invalid(part, key, "a key that is a text of at least one character", type(key).__name__)
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise _invalid(part, key, "a key of valid Unicode", str(error)) from error
    if size > MOST_KEY_BYTES:
        raise _invalid(part, key, f"a key of at most {MOST_KEY_BYTES} bytes", f"{size:,} bytes")
    return str(key)


def _checked_value(part: str, key: str, value: Any) -> PropertyValue:
    match value:
        case bool():
            return value
        case int() if -(2**63) <= value < 2**63:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case str():
            try:
                size = len(value.encode())
            except UnicodeEncodeError as error:
                raise _invalid(part, key, "a text of valid Unicode", str(error)) from error
            if size > MOST_TOTAL_BYTES:
                limit = f"at most {MOST_TOTAL_BYTES:,} bytes of properties of a work unit"
                raise _invalid(part, key, limit, f"{size:,} bytes")
            return str(value)
    expected = "a text, a boolean, an integer of 64 bits or a finite number"
    raise _invalid(part, key, expected, f"{type(value).__name__} {value!r}")


def _invalid(part: str, key: Any, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        "a property of a task state cannot be stored",
        id="TASK_PROPERTY_INVALID",
        construct=part,
        property=plain_text(str(key), 120),
        expected=expected,
        found=plain_text(found, 200),
        todo="correct task_properties of the class; store larger data at the target or in a file",
    )
