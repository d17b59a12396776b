"""Sources, sinks and constructs by the type that a job file names. Only what a job names is imported.

A source or a sink is a package below `distcommit.sources` or `.sinks`, whose `SETTINGS` names the class of its section
as `module:Class` in it. `distcommit.constructs.TYPES` lists constructs by section and type.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal

from pydantic import BaseModel

from distcommit import constructs
from distcommit.core.errors import ConfigurationError

Section = Literal["source", "sink", "converter", "row_checker", "task_checker", "fork"]
_PACKAGES: dict[Section, str] = {
    "source": "distcommit.sources",
    "sink": "distcommit.sinks",
}


@cache
def types_of(section: Section) -> tuple[str, ...]:
    """The types that a section can have, in the order of the alphabet.

    Raises:
        ConfigurationError: if two places have one of the same name: an import would take the first and hide the other.
    """
    if section in constructs.TYPES:
        return tuple(sorted(constructs.TYPES[section]))
    package = import_module(_PACKAGES[section])
    shared = getattr(package, "SHARED", ())
    places: dict[str, str] = {}
    for place in dict.fromkeys(package.__path__):
        for module in pkgutil.iter_modules([place]):
            if not module.ispkg or module.name.startswith("_") or module.name in shared:
                continue
            if module.name in places:
                raise ConfigurationError(
                    f"two {section}s have the name {module.name!r}",
                    expected="one of each name",
                    found=f"one in {places[module.name]} and one in {place}",
                    todo="take one of them away, or give it another name",
                )
            places[module.name] = place
    return tuple(sorted(places))


@cache
def settings_class(section: Section, name: str) -> type[BaseModel]:
    """The class that holds the settings of a type, and is the source, sink or construct itself."""
    if section in constructs.TYPES:
        package, place = constructs.__name__, constructs.TYPES[section][name]
    else:
        package = f"{_PACKAGES[section]}.{name}"
        place = import_module(package).SETTINGS
    module, _, class_name = place.partition(":")
    found: type[BaseModel] = getattr(import_module(f"{package}.{module}"), class_name)
    return found


def validated(section: Section, value: Any, default: str = "") -> Any:
    """A section as its settings.

    Args:
        section: which one.
        value: what the job file says, or settings as they are.
        default: the type that it has if it names none.

    Raises:
        ValueError: if it is no section, or of no type that there is; pydantic's, if its settings are wrong.
        ConfigurationError: as `types_of`.
    """
    if not isinstance(value, Mapping):
        if isinstance(value, BaseModel):
            return value
        raise ValueError("a section, with `type` and settings")
    named = value.get("type", default)
    if named not in types_of(section):
        raise ValueError(f"`type` is one of {', '.join(types_of(section))}; found {named or 'none'}")
    return settings_class(section, named).model_validate({**value, "type": named})
