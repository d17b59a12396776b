"""Sources, sinks and constructs by the type that a job file names. Only the named ones are imported.

A source or sink is a package below `distcommit.sources` or `.sinks`, whose `SETTINGS` names the class of its section as
`module:Class`. `distcommit.constructs.TYPES` lists constructs by section and type.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal

from pydantic import BaseModel

from distcommit import constructs
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.settings_model import SettingError, raise_all

Section = Literal["source", "sink", "converter", "row_checker", "task_checker", "fork"]
_PACKAGES: dict[Section, str] = {
    "source": "distcommit.sources",
    "sink": "distcommit.sinks",
}


@cache
def types_of(section: Section) -> tuple[str, ...]:
    """Return the types of a section, sorted.

    Raises:
        ConfigurationError: if two packages define a type of the same name, because an import would hide one of them.
    """
    if section in constructs.TYPES:
        return tuple(sorted(constructs.TYPES[section]))
    package = import_module(_PACKAGES[section])
    shared = getattr(package, "SHARED", ())
    locations: dict[str, str] = {}
    for location in dict.fromkeys(package.__path__):
        for module in pkgutil.iter_modules([location]):
            if not module.ispkg or module.name.startswith("_") or module.name in shared:
                continue
            if module.name in locations:
                raise ConfigurationError(
                    f"two {section}s have the name {module.name!r}",
                    id="JOB_FILE_INVALID",
                    expected="one of each name",
                    found=f"one in {locations[module.name]} and one in {location}",
                    todo="take one of them away, or give it another name",
                )
            locations[module.name] = location
    return tuple(sorted(locations))


@cache
def settings_class(section: Section, name: str) -> type[BaseModel]:
    """Return the class with the settings of a type, which is the source, sink or construct itself."""
    if section in constructs.TYPES:
        package, location = constructs.__name__, constructs.TYPES[section][name]
    else:
        package = f"{_PACKAGES[section]}.{name}"
        location = import_module(package).SETTINGS
    module, _, class_name = location.partition(":")
    result: type[BaseModel] = getattr(import_module(f"{package}.{module}"), class_name)
    return result


def validated(section: Section, value: Any, default: str = "") -> Any:
    """Return a section of a job file as an instance of its settings class.

    Args:
        value: section in the job file, or an instance of its settings class.
        default: type if `value` names none.

    Raises:
        ValueError: if `value` is not a section, its type is unknown, or pydantic rejects a setting.
        ConfigurationError: if two packages define a type of the same name.
    """
    if not isinstance(value, Mapping):
        if isinstance(value, BaseModel):
            return value
        raise SettingError("must be a section with type and the settings of that type")
    named = value.get("type", default)
    if named not in types_of(section):
        near = difflib.get_close_matches(str(named), types_of(section), n=1)
        raise_all(
            [
                SettingError(
                    f"must be one of {', '.join(types_of(section))}",
                    "type",
                    actual=str(named or "none"),
                    remedy=f"did you mean {near[0]}?" if near else "",
                )
            ]
        )
    return settings_class(section, named).model_validate({**value, "type": named})
