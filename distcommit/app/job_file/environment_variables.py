"""Variables of the environment in values of a job file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from distcommit.core.support.settings_model import Key

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def with_variables(value: Any) -> Any:
    """Return a tree of settings with `${NAME}` and `${NAME:-default}` replaced from the environment. A reference to an
    unset variable without default stays.
    """
    if isinstance(value, Mapping):
        return {key: with_variables(below) for key, below in value.items()}
    if isinstance(value, list):
        return [with_variables(below) for below in value]
    return _VARIABLE.sub(_value_of, value) if isinstance(value, str) else value


def texts_of(value: Any, keys: Key = ()) -> Iterator[tuple[Key, str]]:
    """Yield each text in a tree of settings with its keys."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping | list):
        for key, below in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from texts_of(below, (*keys, key))


def variables_in(text: str) -> list[str]:
    """Return the names of the variables in a text."""
    return [match[1] for match in _VARIABLE.finditer(text)]


def unset_in(text: str) -> list[str]:
    """Return the variables that a text names, are not set in the environment and have no default."""
    return [match[1] for match in _VARIABLE.finditer(text) if match[2] is None and match[1] not in os.environ]


def unset_variables(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return the first unset environment variable that each setting names, by the setting's dotted key."""
    results = {".".join(map(str, keys)): unset_in(text) for keys, text in texts_of(tree)}
    return {key: names[0] for key, names in results.items() if names}


def _value_of(match: re.Match[str]) -> str:
    value = os.environ.get(match[1], match[2])
    return match[0] if value is None else value
