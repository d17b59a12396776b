"""Custom classes: the settings that name a class, its loader, and the guard around its code.

A job file names a class as `class: package.module:Class`. Each process creates its own object of the class.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from distcommit.core.errors import ConfigurationError, DistcommitError, TransientError, error_text
from distcommit.core.support.settings_model import SettingsModel
from distcommit.fs.secret_files import with_secret_files_in

Kind = TypeVar("Kind")


class CustomClass(SettingsModel):
    """Base of the job-file sections that name a custom source, sink or construct, and act as an object of that class.

    A subclass passes `interface` (the base class of the custom class) and `section` (the job file's section, for
    messages) as class arguments. Public members of `interface` that the subclass does not define are forwarded to
    `instance`, within `custom_code`. Members in `not_forwarded` are not forwarded. Members in `unguarded` are forwarded
    without `custom_code`, because their callers attribute errors to a record, dataset or work unit.

    Attributes:
        class_name: the class, as `package.module:Class`. The driver and each executor must be able to import it.
        options: keyword arguments of the class. Values may be `${file:PATH}`.
    """

    model_config = ConfigDict(ignored_types=(cached_property,))

    _interface: ClassVar[type[Any]]
    _section: ClassVar[str]

    class_name: str = Field(alias="class")
    options: dict[str, Any] = Field(default_factory=dict)

    def __init_subclass__(
        cls,
        *,
        interface: type[Any],
        section: str,
        unguarded: frozenset[str] = frozenset(),
        not_forwarded: frozenset[str] = frozenset(),
        **config: Any,
    ) -> None:
        super().__init_subclass__(**config)
        cls._interface, cls._section = interface, section
        for name in dir(interface):
            if not (name.startswith("_") or name in not_forwarded or name in vars(cls)):
                is_method = inspect.isfunction(inspect.getattr_static(interface, name))
                forward = _forwarded_method if is_method else _forwarded_property
                setattr(cls, name, forward(name, name not in unguarded))

    @cached_property
    def instance(self) -> Any:
        """The object of the custom class, created at the first access in each process.

        Raises:
            ConfigurationError: if a secret file is unreadable, the class can't be imported or instantiated, it is not a
                subclass of the interface, or `check_instance` rejects the object.
        """
        options = with_secret_files_in(self.options)
        instance = create_custom(self._interface, self._section, self.class_name, options)
        self.check_instance(instance)
        return instance

    def check_instance(self, instance: Any) -> None:
        """Raise ConfigurationError if the object is unsuitable; a hook for subclasses that accepts all objects by
        default."""

    def guard(self, *contract: type[Exception]) -> AbstractContextManager[None]:
        return custom_code(self._section, self.class_name, *contract)

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {name: v for name, v in state["__dict__"].items() if name != "instance"}}


def _forwarded_method(name: str, is_guarded: bool) -> Callable[..., Any]:
    def forward(self: CustomClass, *args: Any, **options: Any) -> Any:
        method = getattr(self.instance, name)
        if not is_guarded:
            return method(*args, **options)
        with self.guard():
            return method(*args, **options)

    forward.__name__ = name
    return forward


def _forwarded_property(name: str, is_guarded: bool) -> property:
    def forward(self: CustomClass) -> Any:
        if not is_guarded:
            return getattr(self.instance, name)
        with self.guard():
            return getattr(self.instance, name)

    return property(forward)


def create_custom(kind: type[Kind], section: str, class_name: str, options: Mapping[str, Any]) -> Kind:
    """Import a class and create an object of it with these options, converted to the types of its parameters.

    Args:
        kind: the required base class.
        section: the section of the job file that names the class, for messages.
        class_name: `package.module:Class`.
        options: keyword arguments.

    Raises:
        ConfigurationError: if the class can't be imported or instantiated, an option can't be converted, or the object
            is not a `kind`.
        DistcommitError: if the import or the class raises one.
    """
    expected = f"package.module:Class, importable by driver and executors, made from {section}.options"
    with _usable(f"the {section}'s class cannot be used", expected, class_name=class_name):
        result = _imported(class_name)
        instance = result(**_typed(result, options))
    if not isinstance(instance, kind):
        raise ConfigurationError(
            f"the {section}'s class is not a subclass of distcommit.{kind.__name__}",
            id="CUSTOM_CLASS_INVALID",
            class_name=class_name,
        )
    return instance


def load_function(section: str, function_name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Import a function that accepts one argument and these options.

    Args:
        section: the section of the job file that names the function, for messages.
        function_name: `package.module:function`.
        options: keyword arguments.

    Raises:
        ConfigurationError: if the function can't be imported, or does not accept the arguments.
        DistcommitError: if the import raises one.
    """
    expected = f"package.module:function, importable by the driver, of one argument and {section}.options"
    with _usable(f"the function of {section} cannot be used", expected, function=function_name):
        function: Callable[..., Any] = _imported(function_name)
        inspect.signature(function).bind(None, **options)
    return function


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


@contextmanager
def _usable(failure: str, expected: str, **ids: str) -> Iterator[None]:
    try:
        yield
    except (DistcommitError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit: importing a class must not end the process
        raise ConfigurationError(
            failure, id="CUSTOM_CLASS_INVALID", expected=expected, found=error_text(error), **ids
        ) from error


@contextmanager
def custom_code(section: str, class_name: str, *contract: type[Exception]) -> Iterator[None]:
    """Convert exceptions from the code of a custom class to errors that name the class.

    DistcommitError, KeyboardInterrupt, GeneratorExit and the exceptions in `contract` pass unchanged.

    Args:
        section: the section of the job file that names the class.
        class_name: `package.module:Class`.
        *contract: exceptions that the class may raise.

    Raises:
        TransientError: for a ConnectionError or TimeoutError.
        ConfigurationError: for any other exception, including SystemExit.
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


def _typed(result: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options to the types of the class's parameters, if these are known; raises TypeError."""
    try:
        hints = get_type_hints(result.__init__)
    except (NameError, TypeError, AttributeError):  # such as names that are imported for type checkers only
        hints = {}
    return {name: _converted(name, hints[name], value) if name in hints else value for name, value in options.items()}


def _converted(name: str, kind: Any, value: Any) -> Any:
    has_config = isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind))
    try:
        reader = TypeAdapter[Any](kind, config=None if has_config else ConfigDict(arbitrary_types_allowed=True))
    except (PydanticUserError, SchemaError):  # pydantic knows nothing of the type
        return value
    try:
        return reader.validate_python(value)
    except ValidationError as error:
        reason = "; ".join(item["msg"] for item in error.errors())
        raise TypeError(f"option {name} is a {type(value).__name__}: {reason}") from None
