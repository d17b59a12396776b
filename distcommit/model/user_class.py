"""Objects of the user's own classes, which a job file names as `package.module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

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
        ConfigurationError: if it can't be imported or made, or is something else.
    """
    module, _, name = class_name.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)(**options)
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
