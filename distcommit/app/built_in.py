"""Sources and sinks by the type that a job file names: each is a package below `distcommit.sources` or `.sinks`.

Its name is the type, and its `SETTINGS` the class of the section, as `module:Class` in it. Only what a job names is
imported.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal

from pydantic import BaseModel

Section = Literal["source", "sink"]


@cache
def types_of(section: Section) -> tuple[str, ...]:
    """The types that a section can have, in the order of the alphabet."""
    package = import_module(f"distcommit.{section}s")
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg))


@cache
def settings_class(section: Section, name: str) -> type[BaseModel]:
    """The class that holds the settings of a type, and is the source or sink itself."""
    package = import_module(f"distcommit.{section}s.{name}")
    module, _, class_name = package.SETTINGS.partition(":")
    found: type[BaseModel] = getattr(import_module(f"{package.__name__}.{module}"), class_name)
    return found


def validated(section: Section, value: Any, default: str = "") -> Any:
    """A section as its settings.

    Args:
        section: which one.
        value: what the job file says, or settings as they are.
        default: the type that it has if it names none.

    Raises:
        ValueError: if it is no section, or of no type that there is; pydantic's, if its settings are wrong.
    """
    if not isinstance(value, Mapping):
        if isinstance(value, BaseModel):
            return value
        raise ValueError("a section, with `type` and settings")
    named = value.get("type", default)
    if named not in types_of(section):
        raise ValueError(f"`type` is one of {', '.join(types_of(section))}; found {named or 'none'}")
    return settings_class(section, named).model_validate({**value, "type": named})
