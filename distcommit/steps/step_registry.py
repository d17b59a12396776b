"""Storage of commit steps as versioned data, loaded without running stored code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

import msgspec

from distcommit.core.errors import ConfigurationError, CorruptError, UnknownStepTypeError, UnknownVersionError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.records.sealed_sequences import StepBatch

_types: dict[str, type[CommitStep]] = {}
StepType = TypeVar("StepType", bound=type[CommitStep])


def register(kind: StepType) -> StepType:
    """Register a step class by `type_name`.

    Raises:
        ConfigurationError: if another class has the same type name.
    """
    registered = _types.setdefault(kind.type_name, kind)
    if (registered.__module__, registered.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ConfigurationError(
            "two classes of commit steps have the same type name",
            type_name=kind.type_name,
            expected=repr(registered),
            found=repr(kind),
            todo="give the newer class another type_name; stored steps are read by that name",
        )
    _types[kind.type_name] = kind
    return kind


def dump_steps(steps: Iterable[CommitStep]) -> tuple[StepBatch, ...]:
    """Return the steps as data, in order. Consecutive steps of one type are one batch."""
    kinds = groupby(steps, key=attrgetter("__class__"))
    return tuple(StepBatch(kind.type_name, kind.version, kind.to_rows(list(group))) for kind, group in kinds)


def load_steps(batches: Iterable[StepBatch], context: StepContext) -> Iterator[CommitStep]:
    """Yield the steps that `dump_steps` stored.

    Raises:
        UnknownStepTypeError: if a type is not registered in this process.
        UnknownVersionError: if a newer version of the class stored the steps.
        CorruptError: if the class can't read the data.
        SinkUnavailableError: if the context lacks the sink of a step.
    """
    for batch in batches:
        kind = _types.get(batch.type_name)
        if kind is None:
            raise UnknownStepTypeError(
                "a stored commit step has a type that is not registered here",
                type_name=batch.type_name,
                expected=", ".join(sorted(_types)),
                todo="import the module that registers the type before the store is read; if the module is gone,"
                " quarantine the dataset, then release it with accept",
            )
        if not 1 <= batch.version <= kind.version:
            raise UnknownVersionError(
                "a stored commit step has an unknown version",
                type_name=batch.type_name,
                expected=f"1 to {kind.version}" if kind.version > 1 else "1",
                found=str(batch.version),
                todo="run the version of distcommit that wrote it",
            )
        try:
            yield from kind.from_rows(batch.rows, batch.version, context)
        except (msgspec.DecodeError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise CorruptError(
                "a stored commit step is damaged",
                id="STEP_CORRUPT",
                type_name=batch.type_name,
                found=str(error),
                todo="restore the log from a backup and release the dataset with retry; or release it with accept,"
                " which loses its unpublished records",
            ) from error
