"""Base class of settings, their rules, and the error of one setting's value."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, wraps
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

Key = tuple[str | int, ...]
"""The keys that lead to a setting; an item of a list by its index."""
Rule = Callable[[Any], Iterator["SettingError"]]
AnyRule = TypeVar("AnyRule", bound=Rule)
AnyCheck = TypeVar("AnyCheck")
UNSET_VARIABLE = re.compile(r"\$\{(\w+)\}")
"""A reference to a variable of the environment that was not set when the job file was read."""
_MARK = "_is_setting_rule"


class SettingError(ValueError):
    """The value of a setting breaks a rule.

    Args:
        required: the requirement, as a predicate of the setting: `must be at most 3`.
        *at: the path of the setting within the section that is checked, key by key; none if the section itself breaks
            the rule.
        actual: the actual value, if the message should show another text than the value in the job file.
        remedy: one imperative clause.
    """

    def __init__(self, required: str, *at: str | int, actual: str = "", remedy: str = "") -> None:
        self.required, self.at, self.found, self.remedy = required, at, actual, remedy
        super().__init__(required)

    def __str__(self) -> str:
        subject = [".".join(map(str, self.at))] if self.at else []
        actual = f"; found {self.found}" if self.found else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return " ".join([*subject, self.required]) + actual + remedy


def rule(check: AnyRule) -> AnyRule:
    """Mark a method of settings that yields an error for each broken rule. The method runs if all values are valid."""
    setattr(check, _MARK, True)
    return check


def checks(*fields: str) -> Callable[[AnyCheck], AnyCheck]:
    """Return a decorator that makes a class method the validator of these text settings.

    Values that name an unset environment variable are not checked: only commands that do not use the setting accept
    them.
    """

    def decorate(check: Any) -> Any:
        method = check.__func__

        @wraps(method)
        def checked(cls: type, value: Any) -> Any:
            return value if isinstance(value, str) and UNSET_VARIABLE.search(value) else method(cls, value)

        return field_validator(*fields)(classmethod(checked))

    return decorate


class SettingsModel(BaseModel):
    """Settings of a section of the job file. Unknown keys are errors.

    All rules are checked, also those of base classes, and all of their errors are reported.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        raise_all(error for name in rules_of(type(self)) for error in _errors_of(getattr(self, name)))
        return self


@cache
def rules_of(settings: type[BaseModel]) -> tuple[str, ...]:
    """Return the names of the rules of a settings class, base classes first."""
    members = [member for kind in reversed(settings.__mro__) for member in vars(kind).items()]
    return tuple(dict.fromkeys(name for name, value in members if inspect.isfunction(value) and hasattr(value, _MARK)))


def raise_all(errors: Iterable[SettingError]) -> None:
    """Raise pydantic's ValidationError with all errors; return if there are none."""
    details = [
        InitErrorDetails(type=PydanticCustomError("setting", "{error}", {"error": error}), loc=error.at, input=None)
        for error in errors
    ]
    if details:
        raise ValidationError.from_exception_data("settings", details)


def _errors_of(check: Callable[[], Iterator[SettingError]]) -> Iterator[SettingError]:
    try:
        yield from check()
    except SettingError as error:  # of a function that the rule calls
        yield error


def errors_of(check: Callable[[], object], *at: str | int) -> Iterator[SettingError]:
    """Yield the error that a check of the value at these keys raises."""
    try:
        check()
    except SettingError as error:
        yield SettingError(error.required, *at, *error.at, actual=error.found, remedy=error.remedy)
    except ValueError as error:
        yield SettingError(str(error), *at)
