"""Instances of custom classes, which a job file names as `package.module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from distcommit.core.errors import ConfigurationError, DistcommitError, TransientError, error_text

Kind = TypeVar("Kind")


def make_named(kind: type[Kind], section: str, class_name: str, options: Mapping[str, Any]) -> Kind:
    """Import a class and create an instance.

    Args:
        kind: the required base class.
        section: the section of the job file that names the class, for messages.
        class_name: `package.module:Class`.
        options: keyword arguments.

    Raises:
        ConfigurationError: if the class cannot be imported or instantiated, if an option does not have its parameter's
            type, or if the instance has another base class.
    """
    module, _, name = class_name.partition(":")
    try:
        class_ = getattr(importlib.import_module(module), name)
        instance = class_(**_typed(class_, options))
    except (DistcommitError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit: importing a class must not end the process
        raise ConfigurationError(
            f"the {section}'s class cannot be used",
            class_name=class_name,
            expected=f"package.module:Class, importable by driver and executors, made from {section}.options",
            found=error_text(error),
        ) from error
    if not isinstance(instance, kind):
        raise ConfigurationError(
            f"the {section}'s class is not a subclass of distcommit.{kind.__name__}", class_name=class_name
        )
    return instance


@contextmanager
def custom_code(section: str, class_name: str, *contract: type[Exception]) -> Iterator[None]:
    """Convert errors of a custom class's code into errors that name the class.

    Args:
        section: the section of the job file that names the class.
        class_name: `package.module:Class`.
        *contract: exceptions that the class may raise by its contract; they pass.

    Raises:
        TransientError: for a failed connection.
        ConfigurationError: for any other error, also for SystemExit.
    """
    try:
        yield
    except (DistcommitError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, contract):
            raise
        kind = TransientError if isinstance(error, ConnectionError | TimeoutError) else ConfigurationError
        raise kind(
            f"the {section}'s class raised an error",
            class_name=class_name,
            found=error_text(error),
            todo="correct the class, or its options in the job file",
        ) from error


def _typed(class_: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the options to the types of the class's parameters, where these are known.

    Raises:
        TypeError: if an option has another type.
    """
    try:
        hints = get_type_hints(class_.__init__)
    except (NameError, TypeError, AttributeError):  # names that are imported for type checkers only
        hints = {}
    return {name: _validated(name, hints[name], value) if name in hints else value for name, value in options.items()}


def _validated(name: str, kind: Any, value: Any) -> Any:
    has_config = isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind))
    try:
        reader = TypeAdapter[Any](kind, config=None if has_config else ConfigDict(arbitrary_types_allowed=True))
    except (PydanticUserError, SchemaError):  # pydantic cannot validate this type
        return value
    try:
        return reader.validate_python(value)
    except ValidationError as error:
        why = "; ".join(detail["msg"] for detail in error.errors())
        raise TypeError(f"option {name} is a {type(value).__name__}: {why}") from None
