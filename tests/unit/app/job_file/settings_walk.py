"""Every setting of the job file by its location, from the settings classes."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from distcommit.app.job_file.built_in_types import Section, settings_class, types_of
from distcommit.app.job_file.job_config import JobConfig

Place = tuple[str, ...]
"""Keys from the top of the job file. `0` is the first item of a list, `KEY` a name that the author chooses."""
ROOTS: dict[Section, Place] = {
    "source": ("source",),
    "sink": ("sink",),
    "converter": ("converters", "0"),
    "row_checker": ("row_checkers", "0"),
    "task_checker": ("task_checkers", "0"),
    "fork": ("fork",),
}


def settings() -> Iterator[tuple[str, Place, Any]]:
    """Yield each setting that is not a section: the type of its section, its location and its own type."""
    for name, field in JobConfig.model_fields.items():
        yield from _below("", (name,), field.annotation)
    for section, place in ROOTS.items():
        for kind in types_of(section):
            yield from _below(kind, place, settings_class(section, kind))


def planted(kind: str, place: Place, value: object) -> dict[str, Any]:
    """Return a job-file tree with `value` at `place`, in a section of type `kind`."""
    tree: Any = value
    for depth, key in reversed([*enumerate(place)]):
        tree = [tree] if key == "0" else {key: tree}
        if kind and depth == len(_root(place)):
            tree["type"] = kind
    result: dict[str, Any] = tree
    return result


def _root(place: Place) -> Place:
    return next(root for root in ROOTS.values() if place[: len(root)] == root)


def _below(kind: str, place: Place, annotation: Any, above: tuple[type, ...] = ()) -> Iterator[tuple[str, Place, Any]]:
    if annotation in above:  # a section nested in one of its own kind
        return
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield from _below(kind, (*place, field.alias or name), field.annotation, (*above, annotation))
        return
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _below(kind, place, parts[0], above)
    elif origin in (Union, types.UnionType):
        for part in parts:
            yield from _below(kind, place, part, above)
    elif origin in (list, tuple, set, frozenset):
        yield from _below(kind, (*place, "0"), parts[0], above)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from _below(kind, (*place, "KEY"), parts[1], above)
    elif annotation is not type(None):
        yield kind, place, annotation
