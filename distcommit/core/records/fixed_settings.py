"""Settings that give stored state its meaning: a store is used with those that it was filled with, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Pin:
    """A setting's value, which the store records with its first run.

    `otherwise`: what a person who wants another value can do, if `distcommit migrate import-watermarks` into a new
    store can't carry over what is stored, and refuses to (of a source).
    `unrecorded`: what a store was filled with that has recorded none, if that is known; this value is not recorded.
    `binds`: whether the store keeps to this value from now on, as long as it had no other one. One that does not bind
    is only noted, beside those before it.
    """

    value: str
    otherwise: str = ""
    unrecorded: str = ""
    binds: bool = True


@dataclass(frozen=True, slots=True)
class PinnedSettings:
    """What a job says of the settings that its store pins, by their names in the job file.

    `carried_by`: the command that carries over what is stored, for messages.
    """

    settings: Mapping[str, Pin] = field(default_factory=dict)
    carried_by: str = "distcommit migrate import-watermarks NEW.yaml --from OLD.yaml"

    def __getitem__(self, name: str) -> str:
        """The value of a setting."""
        return self.settings[name].value

    def with_values(self, values: Mapping[str, str]) -> PinnedSettings:
        """The same, but for these settings."""
        return replace(self, settings={**self.settings, **{name: Pin(value) for name, value in values.items()}})


@dataclass(frozen=True, slots=True)
class SourceFact:
    """What a source has found itself to be, such as the id of a cluster: pinned like a setting, once it is known."""

    name: str
    pin: Pin
