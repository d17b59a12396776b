"""The settings class of each section of a job file, by its keys."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, PlainValidator

from distcommit.app.job_file.built_in_types import Section, settings_class, types_of
from distcommit.core.support.settings_model import Key

DEFAULT_TYPES: Mapping[str, str] = {"sink": "files"}


def models_at(root: type[BaseModel], tree: Any, keys: Key) -> list[type[BaseModel]]:
    """Return the settings classes that the section at `keys` may have; none if its type is unknown."""
    return [*_models(root, tree, keys)]


def section_at(root: type[BaseModel], tree: Any, keys: Key) -> Section | None:
    """Return the kind of the section at `keys`: source, sink or a kind of construct. Return None for a section without
    types.
    """
    annotation: Any = root
    for key in keys:
        annotation = next(_below(annotation, tree, key), None)
        tree = value_at(tree, (key,))
    return next(filter(None, map(_section_of, _alternatives(annotation))), None)


def value_at(tree: Any, keys: Key) -> Any:
    for key in keys:
        try:
            tree = tree[key]
        except (LookupError, TypeError):
            return None
    return tree


def keys_of(models: Sequence[type[BaseModel]]) -> list[str]:
    """Return the keys that sections of these classes accept in a job file."""
    return [*dict.fromkeys(field.alias or name for model in models for name, field in model.model_fields.items())]


def types_with(section: Section, key: str) -> list[str]:
    """Return the types of a section that have a setting `key`. Types whose package is not installed are left out."""
    results = []
    for name in types_of(section):
        try:
            model = settings_class(section, name)
        except Exception:  # noqa: BLE001 - a missing package of another type must not hide the problem
            continue
        if key in keys_of([model]):
            results.append(name)
    return results


def _models(annotation: Any, tree: Any, keys: Key) -> Iterator[type[BaseModel]]:
    if not keys:
        yield from _classes(annotation, tree)
        return
    for below in _below(annotation, tree, keys[0]):
        yield from _models(below, value_at(tree, keys[:1]), keys[1:])


def _below(annotation: Any, tree: Any, key: str | int) -> Iterator[Any]:
    """Yield the annotations of the value at `key` below a value with this annotation."""
    for choice in _alternatives(annotation):
        origin, parts = get_origin(choice), get_args(choice)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            yield parts[1]
        elif origin in (tuple, list, Sequence) and isinstance(key, int):
            yield parts[0]
        models = [parts[0]] if _section_of(choice) == "fork" and key == "branches" else _classes(choice, tree)
        for model in models:
            for name, field in model.model_fields.items():
                if key == (field.alias or name):
                    yield Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _classes(annotation: Any, tree: Any) -> Iterator[type[BaseModel]]:
    for choice in _alternatives(annotation):
        section = _section_of(choice)
        if section is not None:
            named = tree.get("type", DEFAULT_TYPES.get(section)) if isinstance(tree, Mapping) else None
            if named in types_of(section):
                yield settings_class(section, str(named))
        elif isinstance(choice, type) and issubclass(choice, BaseModel) and _has_type(choice, tree):
            yield choice


def _has_type(model: type[BaseModel], tree: Any) -> bool:
    field = model.model_fields.get("type")
    if field is None or get_origin(field.annotation) is not Literal or not isinstance(tree, Mapping):
        return True
    return tree.get("type") in (*get_args(field.annotation), None)


def _alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union. Only the annotation that marks a section with types is kept."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        for part in parts:
            yield from _alternatives(part)
    elif origin is Annotated and _section_of(annotation) is None:
        yield from _alternatives(parts[0])
    else:
        yield annotation


def _section_of(annotation: Any) -> Section | None:
    """Return the section that an annotation's validator reads: the first argument of its function."""
    for part in get_args(annotation) if get_origin(annotation) is Annotated else ():
        match part:
            case PlainValidator(func=partial(args=(section, *_))):
                return section  # type: ignore[no-any-return]
    return None
