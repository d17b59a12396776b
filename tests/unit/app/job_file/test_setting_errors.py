"""Every setting and every validator is given a bad value: the problem has its text, key, line and column."""

from __future__ import annotations

import json
import pickle
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import pytest
import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, PlainValidator, SecretStr
from pydantic.fields import FieldInfo

from distcommit.app.job_file.built_in_types import Section, settings_class, types_of
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.load_job_file import job_file_problems, load_config
from distcommit.app.job_file.problems.renamed_settings import RENAMED, REPLACED
from distcommit.app.job_file.problems.section_models import models_at
from distcommit.app.job_file.problems.setting_problems import JobFileError, SettingProblem
from distcommit.app.jobs.stored_job import StoredJob
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.settings_model import SettingsModel, rules_of
from tests.unit.app.job_file.bad_values import BAD, Bad
from tests.unit.app.job_file.settings_walk import ROOTS, Place, planted

DEFAULTS = {
    "job": "job: j",
    "paths": "paths: {store: s, staging: t, output: o}",
    "source": "source: {type: kafka, brokers: 'b:1', topics: [x]}",
}


def models() -> dict[type[BaseModel], None]:
    """Return all classes of settings."""
    nones: dict[type[BaseModel], None] = {}

    def walk(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in nones:
            nones[annotation] = None
            for field in annotation.model_fields.values():
                walk(field.annotation)
        for part in get_args(annotation):
            walk(part)

    walk(JobConfig)
    for section in ROOTS:
        for name in types_of(section):
            walk(settings_class(section, name))
    return nones


def validators() -> Iterator[str]:
    """Yield the name of each rule and validator with its class, and of each validating function of an annotation."""
    for model in models():
        decorators = model.__pydantic_decorators__
        own = {*rules_of(model), *decorators.field_validators, *decorators.model_validators} - {"_check_rules"}
        for name in own:
            yield f"{_owner(model, name).__name__}.{name}"
        for field in model.model_fields.values():
            yield from _functions(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)


def _owner(model: type[BaseModel], name: str) -> type:
    return next(kind for kind in reversed(model.__mro__) if name in vars(kind))


def _functions(annotation: Any) -> Iterator[str]:
    for part in get_args(annotation):
        if isinstance(part, PlainValidator | BeforeValidator | AfterValidator):
            function: Any = part.func
            yield (function.func if isinstance(function, partial) else function).__name__
        else:
            yield from _functions(part)


def problems(text: str, folder: Path) -> tuple[SettingProblem, ...]:
    job = folder / "job.yaml"
    job.write_text(text, encoding="utf-8")
    return job_file_problems(job)


def test_each_validator_has_a_bad_value() -> None:
    exempt = {"FlowSettings._preview_all_branches", "FlowSettings._upsert_by_keys_of_the_extract"}  # reject nothing
    assert {*validators()} - exempt == {*BAD}


@pytest.mark.parametrize("name", BAD)
def test_bad_value_of_each_validator_is_reported_with_its_key_and_position(name: str, tmp_path: Path) -> None:
    bad = with_defaults(BAD[name])
    line, column = position_of_mark(bad.text)
    setting_problems = problems(bad.text.replace("▶", ""), tmp_path)
    matching = [problem for problem in setting_problems if problem.key == bad.key]
    assert matching, [*map(str, setting_problems)]
    assert [problem for problem in matching if problem.required.startswith(bad.required)], [
        problem.text for problem in matching
    ]
    assert {(problem.line, problem.column) for problem in matching} == {(line, column)}
    assert "hush" not in str(setting_problems)


def with_defaults(bad: Bad) -> Bad:
    """Add the required sections that the file does not have."""
    missing = [text for key, text in DEFAULTS.items() if f"\n{key}:" not in f"\n{bad.text.replace('▶', '')}"]
    return bad._replace(text="\n".join([*missing, bad.text]) + "\n")


def position_of_mark(text: str) -> tuple[int, int]:
    before = text[: text.index("▶")]
    return before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1


def fields() -> Iterator[tuple[str, Place, tuple[tuple[Place, str], ...], FieldInfo]]:
    """Yield each setting, sections included."""
    for name, field in JobConfig.model_fields.items():
        yield "", (name,), (), field
        if name not in {place[0] for place in ROOTS.values()}:
            yield from _fields_below("", (name,), (), field.annotation, ())
    for section, place in ROOTS.items():
        for kind in types_of(section):
            yield from _fields_below(kind, place, (), settings_class(section, kind), ())


def _fields_below(
    kind: str, place: Place, typed: tuple[tuple[Place, str], ...], annotation: Any, above: tuple[Any, ...]
) -> Iterator[tuple[str, Place, tuple[tuple[Place, str], ...], FieldInfo]]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation in above or annotation.__name__ == "ForkSettings":
            return
        type_field = annotation.model_fields.get("type")
        if above and type_field is not None and get_origin(type_field.annotation) is Literal:
            typed = (*typed, (place, get_args(type_field.annotation)[0]))
        for name, field in annotation.model_fields.items():
            keys = (*place, field.alias or name)
            if name != "type":
                yield kind, keys, typed, field
            yield from _fields_below(kind, keys, typed, field.annotation, (*above, annotation))
    elif origin is Annotated:
        yield from _fields_below(kind, place, typed, parts[0], above)
    elif origin in (Union, types.UnionType):
        for part in parts:
            yield from _fields_below(kind, place, typed, part, above)
    elif origin in (list, tuple, set, frozenset):
        yield from _fields_below(kind, (*place, "0"), typed, parts[0], above)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from _fields_below(kind, (*place, "KEY"), typed, parts[1], above)


FIELDS = [*fields()]
WRONG = {"BAD": [{"BAD": {"BAD": ["BAD"]}}]}
"""A value that no setting takes, but maps of anything."""
CONVERTED = {"spark.conf"}
"""Settings whose values are converted to text, whatever they are."""


def name_of(field: tuple[str, Place, tuple[tuple[Place, str], ...], FieldInfo]) -> str:
    kind, place, typed, _ = field
    return ".".join([kind, *place, *(name for _, name in typed)])


def takes_anything(annotation: Any) -> bool:
    return annotation is Any or any(takes_anything(part) for part in get_args(annotation) if part is not Ellipsis)


TYPED = [field for field in FIELDS if not takes_anything(field[3].annotation) and ".".join(field[1]) not in CONVERTED]


@pytest.mark.parametrize("field", TYPED, ids=name_of)
def test_value_of_a_wrong_type_is_reported_with_its_key_and_position(field: Any, tmp_path: Path) -> None:
    kind, place, typed, _ = field
    assert_reported(kind, place, typed, WRONG, tmp_path)


def beyond(limit: Any) -> Any:
    """Return a value beyond a limit of a setting; None if it is no limit."""
    bounds: dict[type, Callable[[Any], Any]] = {
        annotated_types.Ge: lambda limit: limit.ge - 1,
        annotated_types.Gt: lambda limit: limit.gt,
        annotated_types.Le: lambda limit: limit.le + 1,
        annotated_types.MinLen: lambda limit: "x" * (limit.min_length - 1),
        annotated_types.MaxLen: lambda limit: "x" * (limit.max_length + 1),
    }
    value_of = bounds.get(type(limit))
    return None if value_of is None else value_of(limit)


LIMITED = [(*field, value) for field in FIELDS for limit in field[3].metadata if (value := beyond(limit)) is not None]


@pytest.mark.parametrize("field", LIMITED, ids=lambda field: name_of(field[:4]) + f"={str(field[4])[:10]}")
def test_value_beyond_a_limit_is_reported_with_its_key_and_position(field: Any, tmp_path: Path) -> None:
    kind, place, typed, info, value = field
    if not isinstance(value, str) or is_text(info.annotation):
        assert_reported(kind, place, typed, value, tmp_path)
    else:
        empty: object = {} if "dict" in str(info.annotation) else []
        assert_reported(kind, place, typed, empty, tmp_path)


def is_text(annotation: Any) -> bool:
    return annotation in (str, SecretStr) or str in get_args(annotation)


def assert_reported(kind: str, place: Place, typed: tuple[tuple[Place, str], ...], value: object, folder: Path) -> None:
    text = marked(tree_with(kind, place, typed, value), place)
    setting_problems = problems(text.replace("▶", ""), folder)
    key = ".".join(place)
    matching = [problem for problem in setting_problems if problem.key == key]
    # A section with types, or a map, reports the wrong key below it.
    below = [problem for problem in setting_problems if problem.key.startswith(f"{key}.")]
    assert matching or below, [*map(str, setting_problems)]
    assert {(problem.line, problem.column) for problem in matching} <= {position_of_mark(text)}
    for problem in setting_problems:
        assert problem.required.startswith(("must ", "is ", "has ")), problem
        assert not any(
            word in str(problem) for word in ("Input should", "Value error", "validation error", "<class")
        ), problem


def tree_with(kind: str, place: Place, typed: tuple[tuple[Place, str], ...], value: object) -> dict[str, Any]:
    """Return the content of a job file with a value at a place, and the types of the sections around it."""
    tree = planted(kind, place, value)
    for keys, name in typed:
        section: Any = tree
        for key in keys:
            section = section[int(key) if key == "0" else key]
        section["type"] = name
    defaults = {key: yaml.safe_load(text)[key] for key, text in DEFAULTS.items() if key not in tree}
    return {**defaults, **tree}


def marked(tree: Any, place: Place) -> str:
    """Return a job file with the mark before the key at a place."""
    key, *below = place or ("",)
    if isinstance(tree, dict):
        entries = [
            f"{'▶' if name == key and not below else ''}{json.dumps(name)}: "
            + (marked(value, tuple(below)) if name == key and below else json.dumps(value))
            for name, value in tree.items()
        ]
        return "{" + ", ".join(entries) + "}"
    return "[" + (marked(tree[0], tuple(below)) if below else f"▶{json.dumps(tree[0])}") + "]"


@pytest.mark.parametrize("old", [*RENAMED, *REPLACED])
def test_former_name_of_a_setting_is_one_problem_that_names_the_new_one(old: str, tmp_path: Path) -> None:
    *above, key = old.split(".")
    new = {**RENAMED, **REPLACED}[old]
    values: dict[str, object] = {"observing": {}, "kept_cuts": 2, "late": "read", "changed": "fail", "otherwise": "a"}
    section: Any = {}
    tree: dict[str, Any] = {"job": "j", "paths": yaml.safe_load(DEFAULTS["paths"])["paths"]}
    files = {"type": "files", "paths": ["/a/{dataset}/*"], "format": "csv"}
    remainder = {
        "type": "rest",
        "url": "https://h/",
        "datasets": ["a"],
        "paging": {"type": "none"},
        "watermark": {"field": "f", "type": "time", "since": "s", "lookback": 0},
    }
    tree["source"] = remainder if key == "answer_s" else files
    if above == ["fork"]:
        tree["fork"] = {"type": "all", "branches": {"a": {}}}
    section = tree.setdefault(above[0], {}) if above else tree
    section[key] = values.get(key, 9)
    text = marked(tree, (*above, key))
    (problem,) = problems(text.replace("▶", ""), tmp_path)
    assert (problem.key, problem.required.split(" ", 3)[3]) == (old, new)
    assert (problem.line, problem.column) == position_of_mark(text)
    with pytest.raises(JobFileError) as refused:
        load_config(tmp_path / "job.yaml")
    assert refused.value.exit_code == 2


def test_setting_of_another_type_is_reported_with_the_types_that_have_it(tmp_path: Path) -> None:
    (problem,) = problems(
        "job: j\npaths: {store: s, staging: t, output: o}\n"
        "source:\n  type: files\n  paths: ['/a/{dataset}/*']\n  format: csv\n  topics: [x]\n",
        tmp_path,
    )
    assert problem.text == "source.topics is a setting of type kafka; this source is of type files; remove it"
    assert problem.origin == f"{tmp_path}/job.yaml:7:3"


def test_override_is_named_as_the_origin_of_its_value(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("\n".join(DEFAULTS.values()))
    (problem,) = job_file_problems(tmp_path / "job.yaml", ["retention.runs=0"])
    assert (problem.origin, problem.line, problem.key) == ("--set", 0, "retention.runs")


def test_reading_commands_need_only_the_variables_that_they_use(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: j\npaths: {store: s, staging: t, output: o}\nsource: {type: sql, url: '${GONE_URL}', password: '${GONE}',"
        " tables: [t], watermark: id, lookback: 0}\n"
    )
    assert [(problem.line, problem.column, problem.required.split()[4]) for problem in job_file_problems(job)] == [
        (3, 21, "GONE_URL,"),
        (3, 41, "GONE,"),
    ]
    stored = StoredJob.from_file(job, needs_variables=False)
    with pytest.raises(ConfigurationError, match="the store does not exist"):
        stored.status()
    with pytest.raises(ConfigurationError, match=r"source\.url: \$\{GONE_URL\}, source\.password.*set GONE_URL, GONE"):
        stored._folders.opened()
    with pytest.raises(ConfigurationError, match="a value of GONE"):
        stored.config.source.open()
    job.write_text(job.read_text().replace("store: s", "store: '${GONE}'"))
    with pytest.raises(ConfigurationError, match=r"paths\.store: \$\{GONE\}"):
        StoredJob.from_file(job, needs_variables=False).status()


def test_all_problems_are_in_the_error_and_survive_pickling(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("\n".join([*DEFAULTS.values(), "retention: {runs: 0, tables: x}", "lock: {enabled: 5}"]))
    with pytest.raises(JobFileError, match="the job file has 3 problems") as refused:
        load_config(job)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.problems) == (str(refused.value), refused.value.problems)
    assert [item.key for item in again.problems] == ["retention.runs", "retention.tables", "lock.enabled"]


def test_sections_with_types_are_found_by_their_validators() -> None:
    sections: tuple[Section, ...] = ("converter", "row_checker", "task_checker")
    for section in sections:
        name = types_of(section)[0]
        tree = {f"{section}s": [{"type": name}]}
        assert models_at(JobConfig, tree, (f"{section}s", 0)) == [settings_class(section, name)]
    assert all(issubclass(model, SettingsModel) for model in models())


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "ISO-8859-1"])
def test_job_file_in_another_encoding_is_rejected_with_its_name_and_the_remedy(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(("\n".join(DEFAULTS.values()) + "\n# für\n").encode(encoding))
    (problem,) = job_file_problems(path)
    assert problem.required == "must be encoded in UTF-8"
    if encoding == "ISO-8859-1":
        assert (problem.line, problem.found) == (4, "byte 0xfc, as in ISO-8859-1 or windows-1252")
    else:
        assert problem.found == encoding
        assert problem.remedy.endswith(f"iconv -f {encoding} -t UTF-8 {path} > utf-8.yaml")


def test_job_file_with_a_byte_order_mark_of_utf_8_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("\n".join(DEFAULTS.values()), encoding="utf-8-sig")
    assert load_config(path).job == "j"
