"""Schemas that are kept below a dataset's name, carried over to the names that it has from now on.

Those of several datasets that become one may have the same numbers, so each gets a new one: of the epoch of who moves
them, which is no run's, and in the order in which they were put. So the newest one of all decides, as it did of each.
What is there is left, and what is put is durable before anything names it: who begins anew puts the same.

Ids that a registry has given are the same under any name, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from distcommit.core.errors import CorruptError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.parallel import in_flight
from distcommit.core.work import MOST_SCHEMAS, SchemaIds
from distcommit.protocol.paths.store import numbered_name
from distcommit.protocol.renaming import NamedNow
from distcommit.stores.schemas.schema_history import (
    SCHEMA_VERSION,
    KeptSchema,
    first_number,
    is_of_registry,
    kept_in,
    read_kept,
)
from distcommit.stores.state.documents import encode_document
from distcommit.stores.state.job_store import JobStore


@dataclass(frozen=True, slots=True)
class Carried:
    """A dataset under its new name. `schemas`: ids by converter, as it knows them there; `documents`: what is to be
    put for it, by path."""

    dataset_urn: str
    schemas: SchemaIds
    documents: Mapping[str, KeptSchema]


def to_carry(
    store: JobStore, before: Iterable[DatasetState], after: Iterable[DatasetState], named_now: NamedNow, epoch: int
) -> list[Carried]:
    """What is to be carried over. Reads each schema of those that get other names; writes nothing.

    Args:
        store: the store.
        before: all states, under the names that they had.
        after: those that are wanted under the names that they get, as `renaming.renamed` makes them.
        named_now: as there.
        epoch: whose numbers they get. No run has it.

    Raises:
        CorruptError: if one can't be read, or the newest one of a dataset is gone.
    """
    found = {state.dataset_urn: state for state in before}
    sources: dict[str, set[str]] = {}
    for state in found.values():
        for partition in state.watermark.positions if state.watermark and state.schemas else ():
            now = named_now(state.dataset_urn, partition)
            if now != state.dataset_urn:
                sources.setdefault(now, set()).add(state.dataset_urn)
    wanted = [state for state in after if state.dataset_urn in sources]

    def carried(state: DatasetState) -> Carried:
        was = found.get(state.dataset_urn) or DatasetState(state.dataset_urn)
        return _carried(store, state, was, [found[urn] for urn in sorted(sources[state.dataset_urn])], epoch)

    return in_flight(store.fs.parallel_calls, carried, wanted)


def carry(store: JobStore, carried: list[Carried]) -> dict[str, SchemaIds]:
    """Puts what is to be carried over, durably; by the dataset's new name, the ids that it knows.

    Raises:
        CorruptError: if something else is there.
    """
    each = [item for one in carried for item in one.documents.items()]
    in_flight(store.fs.parallel_calls, partial(_put, store), each)
    folders = sorted({path.rpartition("/")[0] for path, _ in each})
    if folders:
        store.fs.sync(folders, store.roots.store)
    return {one.dataset_urn: one.schemas for one in carried}


def _carried(
    store: JobStore, state: DatasetState, was: DatasetState, sources: list[DatasetState], epoch: int
) -> Carried:
    schemas, documents = dict(state.schemas), dict[str, KeptSchema]()
    for converter in state.schemas:
        stay, kept = set(was.schemas.get(converter, ())), list[tuple[int, str, Mapping[str, Any]]]()
        for source in sources:
            read = _read(store, source, converter)
            stay.update(number for number, schema in read.items() if schema is None)
            kept += [(number, source.dataset_urn, schema) for number, schema in read.items() if schema is not None]
        distinct: list[Mapping[str, Any]] = []
        for _, _, schema in sorted(kept, key=lambda one: one[:2], reverse=True):
            if schema not in distinct:
                distinct.append(schema)
        newest = list(reversed(distinct[:MOST_SCHEMAS]))
        numbers = range(first_number(epoch), first_number(epoch) + len(newest))
        ids = [*(number for number in state.schemas[converter] if number in stay), *numbers]
        schemas[converter] = tuple(ids[-MOST_SCHEMAS:])
        folder = kept_in(store.roots.store, state.dataset_urn, converter)
        for number, schema in zip(numbers, newest, strict=True):
            document = KeptSchema(SCHEMA_VERSION, state.dataset_urn, converter, dict(schema))
            documents[f"{folder}/{numbered_name(number)}"] = document
    return Carried(state.dataset_urn, schemas, documents)


def _read(store: JobStore, source: DatasetState, converter: str) -> dict[int, Mapping[str, Any] | None]:
    """What a dataset's ids of a converter stand for; None of one that a registry has given."""
    found: dict[int, Mapping[str, Any] | None] = {}
    folder = kept_in(store.roots.store, source.dataset_urn, converter)
    for number in source.schemas.get(converter, ()):
        document = read_kept(store.fs, f"{folder}/{numbered_name(number)}")
        found[number] = document.schema if document and not is_of_registry(document.schema) else None
    if found and found[max(found)] is None and any(schema is not None for schema in found.values()):
        raise CorruptError(
            "the columns that a dataset's records were read with are gone",
            dataset=source.dataset_urn,
            converter=converter,
            expected=f"{folder}/{numbered_name(max(found))}",
            found="no such file",
            todo="restore it from a backup of the store, then give this again",
        )
    return found


def _put(store: JobStore, item: tuple[str, KeptSchema]) -> None:
    path, document = item
    store.fs.make_folders(path.rpartition("/")[0])
    if not store.fs.put_if_absent(path, encode_document(document)) and read_kept(store.fs, path) != document:
        raise CorruptError(
            "columns that are to be carried over to a dataset's new name can't be put",
            dataset=document.dataset,
            converter=document.converter,
            path=path,
            expected="nothing there, or the same ones",
            found="others",
            todo="see what has left them there, move them away and give this again",
        )
