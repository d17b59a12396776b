"""Fixed settings: they give stored state its meaning, so a store accepts only the values that it was filled with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class FixedSetting:
    """The value of a fixed setting, which the store records with its first run.

    Attributes:
        value: the value.
        otherwise: for a source's setting, the remedy for an operator who wants another value and cannot carry the state
            over with `distcommit migrate import-watermarks`.
        unrecorded: the value of stores that recorded none, if it is known. This value is not recorded.
        binds: whether the store rejects other values from now on, provided that it had no other value before. A value
            that does not bind is only noted beside earlier values.
    """

    value: str
    otherwise: str = ""
    unrecorded: str = ""
    binds: bool = True


@dataclass(frozen=True, slots=True)
class FixedSettings:
    """The job's fixed settings.

    Attributes:
        settings: the values by their names in the job file.
        carried_by: the command that carries the stored state over to other values, for messages.
        restarted_by: the command that runs the job in new folders from its start, for messages.
    """

    settings: Mapping[str, FixedSetting] = field(default_factory=dict)
    carried_by: str = "distcommit migrate import-watermarks NEW.yaml --from OLD.yaml"
    restarted_by: str = ""

    def __getitem__(self, name: str) -> str:
        """Return the value of a setting."""
        return self.settings[name].value

    def with_values(self, values: Mapping[str, str]) -> FixedSettings:
        """Return a copy with other values for these settings."""
        return replace(
            self, settings={**self.settings, **{name: FixedSetting(value) for name, value in values.items()}}
        )


@dataclass(frozen=True, slots=True)
class SourceFact:
    """A property that a source finds out at run time, such as a cluster's id. It is fixed once it is known.

    Attributes:
        name: the property's name.
        setting: its value.
    """

    name: str
    setting: FixedSetting
