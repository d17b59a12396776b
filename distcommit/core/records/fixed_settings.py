"""Fixed settings: settings that give stored state its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class FixedSetting:
    """The value of a fixed setting: a store with committed state accepts only the value that it has recorded.

    Attributes:
        value: the value in the job file.
        otherwise: the remedy for an operator who wants another value. Empty for the usual one: restore the old value,
            or transfer the state by `distcommit migrate import-watermarks`.
        unrecorded: the value that a store has if its record of settings lacks this setting, because the store is older
            than the setting. So a setting with this value is never recorded. Empty if no value can be assumed.
        binds: whether the store rejects other values from now on. If not, the store only adds the value to the list of
            values that it has seen.
    """

    value: str
    otherwise: str = ""
    unrecorded: str = ""
    binds: bool = True


@dataclass(frozen=True, slots=True)
class FixedSettings:
    """The fixed settings of a job.

    Attributes:
        settings: the settings, with their remedies, by name in the job file.
        carried_by: the command that transfers the stored state to new folders, for messages.
        restarted_by: the command that runs the job in new folders from its start, for messages.
    """

    settings: Mapping[str, FixedSetting] = field(default_factory=dict)
    carried_by: str = "distcommit migrate import-watermarks NEW.yaml --from OLD.yaml"
    restarted_by: str = ""

    def __getitem__(self, name: str) -> str:
        return self.settings[name].value

    def with_values(self, values: Mapping[str, str]) -> FixedSettings:
        return replace(
            self, settings={**self.settings, **{name: FixedSetting(value) for name, value in values.items()}}
        )


@dataclass(frozen=True, slots=True)
class SourceFact:
    """A property that a source reads at run time, such as a cluster's id. It is fixed once it is recorded.

    Attributes:
        name: the property's name.
        setting: its value.
    """

    name: str
    setting: FixedSetting
