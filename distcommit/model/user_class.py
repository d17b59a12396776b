"""Objects of the user's own classes, which a job file names as `package.module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from distcommit.model.errors import ConfigurationError

Kind = TypeVar("Kind")


def make_named(kind: type[Kind], section: str, class_name: str, options: Mapping[str, Any]) -> Kind:
    """Imports the class and makes an object of it.

    Args:
        kind: the base class that it has to have.
        section: the section of the job file that names it, for messages.
        class_name: `package.module:Class`.
        options: keyword arguments.

    Raises:
        ConfigurationError: if it can't be imported or made, if an option is not of the type that its parameter says,
            or if it is something else.
    """
    module, _, name = class_name.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
        made = found(**_typed(found, options))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the {section}'s class can't be used",
            class_name=class_name,
            expected=f"package.module:Class, importable by driver and executors, made from {section}.options",
            found=f"{type(error).__name__}: {error}",
        ) from error
    if not isinstance(made, kind):
        raise ConfigurationError(
            f"the {section}'s class is not a subclass of distcommit.{kind.__name__}", class_name=class_name
        )
    return made


def _typed(found: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the types of the class's parameters have them, where these can be told.

    Raises:
        TypeError: if one is of another type.
    """
    try:
        hints = get_type_hints(found.__init__)
    except (NameError, TypeError, AttributeError):  # as of what is imported for type checkers alone
        hints = {}
    return {name: _as_said(name, hints[name], value) if name in hints else value for name, value in options.items()}


def _as_said(name: str, kind: Any, value: Any) -> Any:
    has_config = isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind))
    try:
        reader = TypeAdapter[Any](kind, config=None if has_config else ConfigDict(arbitrary_types_allowed=True))
    except (PydanticUserError, SchemaError):  # nothing can be told of such a type
        return value
    try:
        return reader.validate_python(value)
    except ValidationError as error:
        why = "; ".join(each["msg"] for each in error.errors())
        raise TypeError(f"option {name} = {value!r}: {why}") from None
