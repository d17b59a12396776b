"""Problems of a job file from pydantic's errors: the key, the requirement and the actual value of each."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from distcommit.app.job_file.problems.section_models import (
    DEFAULT_TYPES,
    keys_of,
    models_at,
    section_at,
    types_with,
    value_at,
)
from distcommit.core.redaction import HIDDEN
from distcommit.core.support.settings_model import Key, SettingError

_REQUIRED = {
    "missing": "must be set",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "string_too_long": "must have at most {max_length} characters",
    "union_tag_not_found": "must have the key type",
    "union_tag_invalid": "must have one of these types: {expected_tags}",
    **dict.fromkeys(("too_short", "string_too_short"), "must not be empty"),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "must be a section"),
    **dict.fromkeys(("string_type", "string_sub_type"), "must be text"),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid"),
        "must be an ISO 8601 time",
    ),
    "timezone_aware": "must be a time with its time zone",
    **dict.fromkeys(("date_type", "date_parsing", "date_from_datetime_parsing"), "must be a date"),
}
"""Requirements by pydantic's type of error."""
_SHOWN = 60
"""Characters of a value that a message shows."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """An invalid setting.

    Attributes:
        keys: keys and list indexes from the top of the job file to the setting.
        required: the requirement, as in `SettingProblem`.
        found: actual value; empty if it is not shown.
        remedy: one imperative clause; empty if `required` suffices.
    """

    keys: Key
    required: str
    found: str = ""
    remedy: str = ""


def invalid_settings(error: ValidationError, root: type[BaseModel], tree: Any, shown: Any) -> list[Invalid]:
    """Return the invalid settings of a job file, in its order. If all members of a union reject a value, it is one
    problem.
    """
    by_keys: dict[tuple[Key, bool], list[Invalid]] = {}
    for problem in error.errors(include_url=False):
        cause = (problem.get("ctx") or {}).get("error")
        named = len(cause.at) if isinstance(cause, SettingError) else (1 if problem["type"] == "missing" else 0)
        keys = _keys_in(tree, problem["loc"], named)
        if isinstance(cause, SettingError):
            is_absent = cause.at and value_at(tree, keys) is None
            actual = cause.found or ("" if is_absent else _shown(value_at(shown, keys)))
            entry = Invalid(keys, cause.required, actual, cause.remedy)
        elif problem["type"] == "extra_forbidden":
            entry = _unknown(keys, root, tree)
        else:
            entry = Invalid(keys, _required(problem), "" if named else _shown(value_at(shown, keys)))
        is_rule = isinstance(cause, SettingError) or problem["type"] == "extra_forbidden"
        by_keys.setdefault((keys, is_rule), []).append(entry)
    return [*_merged(by_keys)]


def _merged(by_keys: Mapping[tuple[Key, bool], list[Invalid]]) -> Iterator[Invalid]:
    for (keys, is_rule), entries in by_keys.items():
        if is_rule:
            yield from dict.fromkeys(entries)
            continue
        required = [*dict.fromkeys(entry.required for entry in entries)]
        alternatives = [required[0], *(text.removeprefix("must be ") for text in required[1:])]
        yield Invalid(keys, " or ".join(alternatives), entries[0].found)


def _keys_in(tree: Any, location: tuple[int | str, ...], named: int) -> Key:
    """Return pydantic's location of an error as keys of the job file, without the tags of unions and validators.

    The last `named` parts are keys although the job file lacks them.
    """
    keys: list[int | str] = []
    for index, part in enumerate(location):
        is_item = isinstance(tree, list) and isinstance(part, int) and part < len(tree)
        if is_item or (isinstance(tree, Mapping) and part in tree):
            tree = tree[part]
            keys.append(part)
        elif index >= len(location) - named:
            tree = None
            keys.append(part)
    return tuple(keys)


def _unknown(keys: Key, root: type[BaseModel], tree: Any) -> Invalid:
    *above, key = keys
    section_keys, name = tuple(above), str(key)
    section = section_at(root, tree, section_keys)
    own = value_at(tree, (*section_keys, "type")) or DEFAULT_TYPES.get(section or "", "")
    if section is not None and (others := types_with(section, name)):
        several = "s" if len(others) > 1 else ""
        required = (
            f"is a setting of type{several} {', '.join(others)}; this {section.replace('_', ' ')} is of type {own}"
        )
        return Invalid(keys, required, remedy="remove it")
    near = difflib.get_close_matches(name, keys_of(models_at(root, tree, section_keys)), n=1, cutoff=0.5)
    of_type = f" of type {own}" if section is not None else ""
    return Invalid(keys, f"is not a setting{of_type}", remedy=f"did you mean {near[0]!r}?" if near else "remove it")


def _required(problem: Any) -> str:
    template = _REQUIRED.get(problem["type"])
    if template is None:
        return "must be valid: " + str(problem["msg"]).removeprefix("Value error, ")
    context = {name: str(value) for name, value in (problem.get("ctx") or {}).items()}
    for name in ("expected", "expected_tags"):
        context[name] = context.get(name, "").replace("'", "").replace(" or ", ", ")
    for name in ("gt", "ge", "lt", "le"):
        context[name] = context.get(name, "").removesuffix(".0")
    return template.format_map(context)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple) or value in (None, HIDDEN):
        return ""
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
