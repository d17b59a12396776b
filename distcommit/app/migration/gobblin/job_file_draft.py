"""A job file under construction, and the Gobblin properties that it is converted from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from distcommit.app.migration.gobblin.read_properties import Property, unfilled

_TRUTHS = {"true": True, "false": False}


class TranslatedProperty(msgspec.Struct, frozen=True):
    """A property with a setting.

    Attributes:
        name: name of the property.
        location: file name and line, as `FILE:LINE`.
        setting: the setting, as `key: value`.
        note: how the setting differs from the property; empty if it does not.
    """

    name: str
    location: str
    setting: str
    note: str = ""


class UntranslatedProperty(msgspec.Struct, frozen=True):
    """A property without a setting.

    Attributes:
        name: name of the property.
        location: file name and line, as `FILE:LINE`.
        reason: why the property has no setting.
    """

    name: str
    location: str
    reason: str


class JobFileDraft:
    """A job file under construction. Each rule takes properties, and sets settings or records why there is none.
    Properties that no rule takes are reported at the end.

    Args:
        properties: properties by name.
    """

    def __init__(self, properties: Mapping[str, Property]) -> None:
        self._properties = dict(properties)
        self._open = dict(properties)
        self.tree: dict[str, Any] = {}
        self.translated: list[TranslatedProperty] = []
        self.skipped: list[UntranslatedProperty] = []
        self.reads_whole_tables = False

    def pop(self, name: str) -> Property | None:
        """Take a property; None if it is missing or empty. The caller must then call `put` or `skip`.

        Raises:
            ConfigurationError: if it has an undefined variable.
        """
        entry = self._open.pop(name, None)
        if entry is None or not entry.value:
            return None
        if variable := unfilled(entry.value):
            raise entry.wrong(
                f"the variable ${{{variable}}} is not defined",
                todo="give the properties file that defines the variable with --sysconfig, or replace it by its value",
            )
        return entry

    def peek(self, name: str) -> Property | None:
        """Return a property without taking it; None if it is missing or empty."""
        entry = self._properties.get(name)
        return entry if entry is not None and entry.value else None

    def text(self, name: str) -> str:
        """Return a property's value without taking it; empty if it is missing."""
        return self._properties[name].value if name in self._properties else ""

    def put(self, of: Property | None, key: str, value: Any, note: str = "") -> None:
        """Set the key of the job file, such as `section.key`, and record the property `of` as converted; None for an
        assumed setting.
        """
        *sections, last = key.split(".")
        holder = self.tree
        for section in sections:
            holder = holder.setdefault(section, {})
        holder[last] = value
        if of is not None:
            self.translated.append(TranslatedProperty(of.name, of.location, f"{key}: {shown(value)}", note))

    def append(self, of: Property | None, key: str, section: dict[str, Any] | None, note: str = "") -> None:
        """Append a section to the list `key` of the job file, unless it is the last one already. Sets nothing if
        there is no section.
        """
        if section is None:
            return
        present = self.value(key) or []
        self.put(None, key, present if present[-1:] == [section] else [*present, section])
        if of is not None:
            self.translated.append(TranslatedProperty(of.name, of.location, f"{key}: {shown(section)}", note))

    def put_again(self, of: Property, key: str) -> None:
        """Record that a property is part of the setting `key`, which may be unset."""
        value = self.value(key)
        if value is None:
            self.skip(of, f"no policy of the job becomes one of {key}")
        else:
            self.put(of, key, value)

    def secret(self, of: Property, key: str, variable: str) -> None:
        """Set `key` to an environment variable in place of a secret, which is not copied."""
        self.put(of, key, variable, "the value is a secret, which is not copied: set the environment variable")

    def value(self, key: str) -> Any:
        """Return the setting `key`; None if it is not set."""
        holder: Any = self.tree
        for part in key.split("."):
            holder = holder.get(part) if isinstance(holder, dict) else None
        return holder

    def skip(self, of: Property | None, reason: str) -> None:
        """Record that no setting corresponds to the property, and why. Do nothing for None."""
        if of is not None:
            self.skipped.append(UntranslatedProperty(of.name, of.location, reason))

    def remaining(self) -> Iterable[Property]:
        """Return the properties that no rule took, without empty ones."""
        return [entry for entry in self._open.values() if entry.value]


def truth(of: Property) -> bool:
    """Return the value as a boolean. Raises ConfigurationError if it is neither `true` nor `false`."""
    if of.value.lower() not in _TRUTHS:
        raise of.wrong("the value is neither true nor false", expected="true or false")
    return _TRUTHS[of.value.lower()]


def integer_of(of: Property, *, least: int = 0) -> int:
    """Return the value as an integer. Raises ConfigurationError if it is not one, or less than `least`."""
    try:
        found = int(of.value)
    except ValueError:
        raise of.wrong("the value is not a whole number", expected="digits") from None
    if found < least:
        raise of.wrong("the number is too small", expected=f"{least} or more")
    return found


def choice_of(of: Property, choices: Mapping[str, Any]) -> Any:
    """Return the entry of `choices` that the value names, ignoring case. Raises ConfigurationError if there is none."""
    by_name = {name.lower(): value for name, value in choices.items()}
    if of.value.lower() not in by_name:
        raise of.wrong("the value is unknown", expected=", ".join(choices))
    return by_name[of.value.lower()]


def listed(of: Property) -> list[str]:
    """Return the comma-separated parts of the value."""
    return [part for name in of.value.split(",") if (part := name.strip())]


def shown(value: Any) -> str:
    """Return a setting's value in one line."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
