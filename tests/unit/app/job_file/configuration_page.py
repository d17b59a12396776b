"""Generator of conf/docs/reference/configuration.md: all settings of a job file, from the classes that read them.

Run `python -m tests.unit.app.job_file.configuration_page` to update the page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import yaml
from pydantic import AwareDatetime, BaseModel, SecretStr
from pydantic.fields import FieldInfo

import distcommit
from distcommit.app.job_file.built_in_types import Section, settings_class, types_of
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.problems.renamed_settings import RENAMED, REPLACED
from distcommit.app.job_file.secrets import PLACES
from distcommit.constructs.expressions.condition import Condition
from distcommit.schemas.column_types import ColumnType

PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference" / "configuration.md"

_HEAD = """\
# All settings of a job file

Written by `python -m tests.unit.app.job_file.configuration_page` from the classes that read a job file; a test holds it
to them. A job file is YAML; [kafka-to-parquet.yaml](../../jobs/kafka-to-parquet.yaml) is one to copy. `--set
section.key=value` wins over the file. What may be changed once a store is filled:
[changing settings](../operate/changing-settings.md).

All problems of a file are reported at once, each with its position, the setting and a remedy:

    error: the job file has 3 problems:
      job.yaml:6:3: source.topics is a setting of type kafka; this source is of type files; remove it
      job.yaml:9:3: retention.runs must be at least 1; found 0
      job.yaml:11:1: comit is not a setting; did you mean 'commit'?

`${NAME}` and `${NAME:-default}` in values come from the environment. Commands that only read the store need no variable
of another setting. `${file:/absolute/path}` is a secret that each process reads when it uses it, in
[some places](#secrets).

A setting without a default has to be there. `x[].y` is `y` of each item of a list, `x.NAME.y` of each value of a map
whose keys are yours. A TYPE of columns is `string`, `binary`, `bool`, `int32`, `int64`, `float64`, `date`, `timestamp`,
`decimal(18, 2)`, `[TYPE]`, `{NAME: TYPE}` or `{"*": TYPE}`, a map.
"""
_SECRETS = """\
## Secrets

Errors, logs, alerts, status, run records and Spark's event log show `***` in place of secrets of 6 or more characters.
A value is a secret if its name is one such as `password` or `token`, if it is below `headers` or `webhooks`, or if it
is the password or the query of a URL. Values of `client`, `options`, `params`, `properties`, `catalog`, `alerts`,
`spark.conf` and of a Spark reader's `datasets` and `tables` are secrets as well, in the job file and in `--set`. They
are shown if they are a plain word, a number, a path or a class, or if the job file shows them elsewhere. Options that
Spark reads as it starts, such as `spark.driver.extraJavaOptions`, are arguments of its JVM, which `ps` shows.

`${file:/absolute/path}` is allowed in these places (`*` is any section, KEY any name in it, N a number in a list):

| place | what |
| --- | --- |
"""
_OF_FLOW = {"source", "converters", "row_checkers", "fork", "sink", "task_checkers"}
_PARTS: Mapping[Section, tuple[str, str]] = {
    "source": ("Sources", "The section `source`, by its `type`."),
    "converter": (
        "Converters",
        "Each of the list `converters`, of a job or a branch. [How they go together](../guides/transforms.md).",
    ),
    "row_checker": (
        "Row checkers",
        "Each of the list `row_checkers`, of a job or a branch. A record that does not pass a mandatory one goes to\n"
        "the error branch (`divert`), is dropped and counted (`drop`), or fails its work unit (`fail`).",
    ),
    "fork": (
        "Forks",
        "The section `fork`. Each type also has `branches`: by name, the `converters`, `row_checkers`, `sink` and\n"
        "`task_checkers` of a branch, and `optional` (`false`): whether the other branches commit if this branch\n"
        "fails; its records then go to its error branch. And each type has `unmatched`: records that the fork sends\n"
        "to no branch are rejected (`reject`, the default), dropped and counted (`drop`), or go to the branch of this\n"
        "name, which the fork's own rules must not use.",
    ),
    "sink": (
        "Sinks",
        "The section `sink`, of a job or a branch, by its `type`; without one it is `files`.\n"
        "[How each commits](../connectors/sinks.md).",
    ),
    "task_checker": (
        "Task checkers",
        "Each of the list `task_checkers`, of a job or a branch. One that does not pass fails the attempt.",
    ),
}
_EVERYWHERE: Mapping[str, str] = {
    "type": "which one.",
    "level": "`optional`: what does not pass is only told.",
    "on_failure": "what becomes of a record that does not pass.",
}
_MORE: Mapping[tuple[Section, str], str] = {
    ("source", "files"): "../connectors/source-files.md",
    ("source", "kafka"): "../connectors/source-kafka.md",
    ("source", "micro_batch"): "../guides/streaming.md",
    ("source", "python"): "../guides/custom-source.md",
    ("source", "rest"): "../connectors/source-rest.md",
    ("source", "spark"): "../connectors/source-spark.md",
    ("source", "sql"): "../connectors/source-sql.md",
    ("sink", "console"): "../guides/preview.md",
    ("sink", "files"): "../connectors/sink-files.md",
    ("sink", "python"): "../guides/custom-sinks.md",
    **{
        (section, "python"): "../guides/custom-constructs.md"
        for section in ("converter", "row_checker", "task_checker", "fork")
    },
}
"""The page that describes a type in detail."""


def page() -> str:
    """Return the generated page."""
    secrets = [*_SECRETS.splitlines(), *(f"| `{place}` | {meaning} |" for place, meaning in PLACES.items()), ""]
    parts = (line for section in _PARTS for line in _types(section))
    return "\n".join([_HEAD, *secrets, *_job(), *parts, *_former_names()]).rstrip() + "\n"


def _former_names() -> Iterator[str]:
    yield from ("## Former names", "", "A former name is an error that names the new one.", "")
    yield from ("| former name | name |", "| --- | --- |")
    yield from (f"| `{old}` | `{new}` |" for old, new in {**RENAMED, **REPLACED}.items())


def _job() -> Iterator[str]:
    yield from ("## The job", "")
    fields = JobConfig.model_fields
    plain = {name for name, field in fields.items() if _model(field.annotation) is None} - _OF_FLOW
    yield from _table(sorted((row for row in rows(JobConfig) if row.setting in plain), key=lambda row: row.setting))
    for name, field in fields.items():
        below = _model(field.annotation)
        if below is not None and name not in _OF_FLOW:
            yield from (f"### `{name}`", "", _description(below), "")
            yield from _table(rows(below))


def _types(section: Section) -> Iterator[str]:
    title, text = _PARTS[section]
    names = types_of(section)
    links = ", ".join(f"[`{name}`](#{_slug(section, name)})" for name in names)
    yield from (f"## {title}", "", text, "", links, "")
    for name in names:
        settings = settings_class(section, name)
        yield from (f"### {_heading(section, name)}", "", f"{_description(settings)}{_more(section, name)}", "")
        yield from _table(row for row in rows(settings) if row.setting != "type")


def _more(section: Section, name: str) -> str:
    place = _MORE.get((section, name), f"../connectors/sink-{name}.md" if section == "sink" else "")
    return f" [More]({place})." if place else ""


def _heading(section: Section, name: str) -> str:
    return f"{section.replace('_', ' ').capitalize()} `{name}`"


def _slug(section: Section, name: str) -> str:
    return f"{section.replace('_', '-')}-{name}"


class Row:
    """A setting: its dotted name, its type, its default and its meaning."""

    def __init__(self, setting: str, kind: str, default: str, meaning: str) -> None:
        self.setting, self.kind, self.default, self.meaning = setting, kind, default, meaning


def rows(model: type[BaseModel], prefix: str = "", listed: dict[type[BaseModel], str] | None = None) -> Iterator[Row]:
    """Yield all settings of a section, followed by those of its sub-sections, each kind of section only once."""
    meaning_by_name, listed = meanings(model), {} if listed is None else listed
    for name, field in model.model_fields.items():
        setting = field.alias or name
        meaning = meaning_by_name.get(setting) or meaning_by_name.get(name) or _EVERYWHERE.get(setting, "")
        sections = list(_below(field.annotation))
        repeated = {listed[below] for below, _ in sections if below in listed}
        if repeated:
            meaning = f"{meaning} Has the settings of `{repeated.pop()}`."
        yield Row(prefix + setting, _kind(field.annotation, field.metadata), _default(field), meaning)
        new = {below: way for below, way in reversed(sections) if below not in listed}
        listed |= dict.fromkeys(new, prefix + setting)
        yield from _rows_below(list(reversed(new.items())), prefix + setting, listed)


def _rows_below(
    sections: Sequence[tuple[type[BaseModel], str]], setting: str, listed: dict[type[BaseModel], str]
) -> Iterator[Row]:
    """Yield the settings of the sections that a setting may be; if `type` selects the section, `type` comes first."""
    has_types = len(sections) > 1 and all("type" in below.model_fields for below, _ in sections)
    if has_types:
        types = (_plain_kind(below.model_fields["type"].annotation) for below, _ in sections)
        yield Row(f"{setting}.type", ", ".join(types), "", "which one.")
    for below, way in sections:
        for row in rows(below, f"{setting}{way}.", listed):
            if not has_types:
                yield row
            elif row.setting != f"{setting}.type":
                row.meaning = f"of {_plain_kind(below.model_fields['type'].annotation)}: {row.meaning}"
                yield row


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the meanings of a class's settings, from the `Attributes` of its docstrings."""
    meaning_by_name: dict[str, str] = {}
    for base in (base for base in reversed(model.__mro__) if base.__module__.startswith("distcommit.")):
        _, _, text = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        for names, meaning in re.findall(r"^    ([\w, ]+): ((?:.+\n?)(?:     +.+\n?)*)", text, re.MULTILINE):
            meaning_by_name |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    return meaning_by_name


def _description(model: type[BaseModel]) -> str:
    text = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")[0]
    return text.strip()


def _below(annotation: Any, way: str = "") -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the sections in a setting and the suffix of their names."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        if annotation is not Condition:
            yield annotation, way
    elif origin is Annotated:
        yield from _below(arguments[0], way)
    elif origin in (Union, UnionType):
        for argument in arguments:
            yield from _below(argument, way)
    elif origin is tuple:
        yield from _below(arguments[0], f"{way}[]")
    elif origin is dict:
        yield from _below(arguments[1], f"{way}.NAME")


def _model(annotation: Any) -> type[BaseModel] | None:
    """Return the class of a section, or of an optional section."""
    if get_origin(annotation) is UnionType and NoneType in get_args(annotation):
        (annotation,) = (argument for argument in get_args(annotation) if argument is not NoneType)
    return annotation if inspect.isclass(annotation) and issubclass(annotation, BaseModel) else None


def _kind(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    kind = _plain_kind(annotation)
    bounds = list(filter(None, map(_bound, metadata)))
    if "one character" in bounds:
        bounds = ["one character"]
    return f"{kind}, {', '.join(bounds)}" if bounds else kind


_NAMED = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    SecretStr: "secret text",
    Any: "anything",
}


def _plain_kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation == ColumnType:
        return "TYPE"
    if annotation is AwareDatetime:
        return "ISO 8601 time with its zone"
    if annotation in _NAMED:
        return _NAMED[annotation]
    if origin is Literal:
        return ", ".join(f"`{item}`" for item in arguments)
    if origin is Annotated:
        return _kind(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_plain_kind(item) for item in arguments if item is not NoneType))
    if origin in (tuple, frozenset):
        return f"list of {_plain_kind(arguments[0])}"
    if origin is dict:
        return f"map to {_plain_kind(arguments[1])}"
    if annotation is Condition:
        return "[condition](../guides/transforms.md#conditions)"
    if inspect.isclass(annotation) and issubclass(annotation, StrEnum):
        return ", ".join(f"`{item}`" for item in annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "section"
    return str(getattr(annotation, "__name__", annotation))


def _bound(constraint: Any) -> str:
    match constraint:
        case annotated_types.Ge(ge=least):
            return f"{least} or more"
        case annotated_types.Gt(gt=least):
            return f"more than {least}"
        case annotated_types.Le(le=most):
            return f"at most {most}"
        case annotated_types.MinLen(min_length=1):
            return "not empty"
        case annotated_types.MinLen(min_length=least):
            return f"{least} or more characters"
        case annotated_types.MaxLen(max_length=1):
            return "one character"
        case annotated_types.MaxLen(max_length=most):
            return f"at most {most} characters"
    return ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "as below"
    if value is None:
        return "none"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, tuple | frozenset):
        value = list(value)
    if isinstance(value, StrEnum):
        value = str(value)
    text = (
        yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
        .removesuffix("...\n")
        .strip()
        .replace("''", '""')
    )
    mebibytes, remainder = divmod(value, 1 << 20) if type(value) is int else (0, 1)
    return f"`{text}`" + (f" ({mebibytes} MiB)" if mebibytes and not remainder else "")


def _table(settings: Iterable[Row]) -> list[str]:
    listed = [
        f"| `{row.setting}` | {_cell(row.kind)} | {_cell(row.default)} | {_cell(row.meaning)} |" for row in settings
    ]
    return ["| setting | type | default | meaning |", "| --- | --- | --- | --- |", *listed, ""] if listed else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
