"""Checks that several sections of a job file share: valid patterns, distinct names, and valid dataset names."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from distcommit.core.dataset_urn import MAX_URN_BYTES, check_urn
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.settings_model import SettingError, raise_all


def check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns if all are valid regular expressions.

    Raises:
        pydantic.ValidationError: with each invalid pattern.
    """
    raise_all(error for index, pattern in enumerate(patterns) for error in _pattern_errors(pattern, index))
    return patterns


def check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names if they are distinct.

    Raises:
        pydantic.ValidationError: with each repeated name.
    """
    raise_all(repeated(names))
    return names


def check_client_settings(client: Any, owned: Container[str], required: str, remedy: str) -> Any:
    """Return the settings of a Kafka client with numbers and booleans as text.

    Raises:
        pydantic.ValidationError: with each key in `owned`, which breaks the rule `required`.
    """
    if not isinstance(client, Mapping):
        return client
    raise_all(SettingError(required, key, remedy=remedy) for key in client if key in owned)
    return {key: str(v).lower() if isinstance(v, bool | int | float) else v for key, v in client.items()}


def repeated(names: Sequence[str]) -> Iterator[SettingError]:
    """Yield an error for each name that occurs earlier in the list."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield SettingError("must not be named twice", index, remedy="remove one of them")


def urn_errors(name: str, *at: str | int) -> Iterator[SettingError]:
    """Yield an error if the name cannot be a dataset URN, otherwise nothing. `at` has the keys of the setting."""
    try:
        check_urn(name)
    except ConfigurationError:
        yield SettingError(f"must be the name of a dataset: text of 1 to {MAX_URN_BYTES} bytes of valid UTF-8", *at)


def _pattern_errors(pattern: str, *at: str | int) -> Iterator[SettingError]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield SettingError(f"must be a regular expression: {error}", *at)
