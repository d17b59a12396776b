"""Copies of stored schemas for renamed datasets.

Merged datasets may have the same schema numbers. So each copy gets a new number from the epoch of the move, which no
run has. Copies keep their order, so the newest stays current, and are durable before a log names them. A repeated move
keeps existing files.

Ids of a registry are not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from distcommit.core.errors import CorruptError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.parallel import run_parallel
from distcommit.core.work_units import MOST_SCHEMAS, SchemaIds
from distcommit.protocol.dataset_renaming import NamedNow
from distcommit.protocol.paths.store import numbered_name
from distcommit.schemas.schema_history import is_registry_id
from distcommit.stores.schemas.schema_store import (
    SCHEMA_VERSION,
    StoredSchema,
    first_number,
    read_stored_schema,
    schema_folder,
)
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.stores.state.job_store import JobStore


@dataclass(frozen=True, slots=True)
class SchemaCopy:
    """The schemas of a dataset under its new name.

    Attributes:
        dataset_urn: the new name.
        schemas: schema ids under the new name, by converter.
        documents: schemas to put, by path.
    """

    dataset_urn: str
    schemas: SchemaIds
    documents: Mapping[str, StoredSchema]


def plan_copies(
    store: JobStore, before: Iterable[DatasetState], after: Iterable[DatasetState], named_now: NamedNow, epoch: int
) -> list[SchemaCopy]:
    """Return the copies that a renaming needs. Reads each schema of the renamed datasets; writes nothing.

    Args:
        before: states of all datasets under their old names.
        after: states under the new names, as from `protocol.dataset_renaming.renamed`.
        named_now: maps old names to new ones.
        epoch: epoch of the copies' numbers; no run may have it.

    Raises:
        CorruptError: if a schema cannot be read, or the newest one of a dataset is lost.
    """
    by_urn = {state.dataset_urn: state for state in before}
    sources: dict[str, set[str]] = {}
    for state in by_urn.values():
        for partition in state.watermark.positions if state.watermark and state.schemas else ():
            now = named_now(state.dataset_urn, partition)
            if now != state.dataset_urn:
                sources.setdefault(now, set()).add(state.dataset_urn)
    renamed_states = [state for state in after if state.dataset_urn in sources]

    def copy_of(state: DatasetState) -> SchemaCopy:
        previous = by_urn.get(state.dataset_urn) or DatasetState(state.dataset_urn)
        return _copy_of(store, state, previous, [by_urn[urn] for urn in sorted(sources[state.dataset_urn])], epoch)

    return run_parallel(store.fs.parallel_calls, copy_of, renamed_states)


def put_copies(store: JobStore, copies: list[SchemaCopy]) -> dict[str, SchemaIds]:
    """Put the copies, durably; return the schema ids by new dataset name.

    Raises:
        CorruptError: if a file with other content exists.
    """
    documents = [item for schema_copy in copies for item in schema_copy.documents.items()]
    run_parallel(store.fs.parallel_calls, partial(_put, store), documents)
    folders = sorted({path.rpartition("/")[0] for path, _ in documents})
    if folders:
        store.fs.sync(folders, store.roots.store)
    return {schema_copy.dataset_urn: schema_copy.schemas for schema_copy in copies}


def _copy_of(
    store: JobStore, state: DatasetState, previous: DatasetState, sources: list[DatasetState], epoch: int
) -> SchemaCopy:
    schemas, documents = dict(state.schemas), dict[str, StoredSchema]()
    for converter in state.schemas:
        unchanged_ids, stored = set(previous.schemas.get(converter, ())), list[tuple[int, str, Mapping[str, Any]]]()
        for source in sources:
            schemas_by_id = _read(store, source, converter)
            unchanged_ids.update(number for number, schema in schemas_by_id.items() if schema is None)
            stored += [
                (number, source.dataset_urn, schema) for number, schema in schemas_by_id.items() if schema is not None
            ]
        distinct: list[Mapping[str, Any]] = []
        for _, _, schema in sorted(stored, key=lambda schema_copy: schema_copy[:2], reverse=True):
            if schema not in distinct:
                distinct.append(schema)
        newest_schemas = list(reversed(distinct[:MOST_SCHEMAS]))
        numbers = range(first_number(epoch), first_number(epoch) + len(newest_schemas))
        ids = [*(number for number in state.schemas[converter] if number in unchanged_ids), *numbers]
        schemas[converter] = tuple(ids[-MOST_SCHEMAS:])
        folder = schema_folder(store.roots.store, state.dataset_urn, converter)
        for number, schema in zip(numbers, newest_schemas, strict=True):
            document = StoredSchema(SCHEMA_VERSION, state.dataset_urn, converter, dict(schema))
            documents[f"{folder}/{numbered_name(number)}"] = document
    return SchemaCopy(state.dataset_urn, schemas, documents)


def _read(store: JobStore, source: DatasetState, converter: str) -> dict[int, Mapping[str, Any] | None]:
    """Return a converter's schemas by id; None for ids of a registry and lost schemas."""
    by_urn: dict[int, Mapping[str, Any] | None] = {}
    folder = schema_folder(store.roots.store, source.dataset_urn, converter)
    for number in source.schemas.get(converter, ()):
        document = read_stored_schema(store.fs, f"{folder}/{numbered_name(number)}")
        by_urn[number] = document.schema if document and not is_registry_id(document.schema) else None
    if by_urn and by_urn[max(by_urn)] is None and any(schema is not None for schema in by_urn.values()):
        raise CorruptError(
            "the inferred columns of a dataset are lost",
            id="SCHEMA_HISTORY_LOST",
            dataset=source.dataset_urn,
            converter=converter,
            expected=f"{folder}/{numbered_name(max(by_urn))}",
            found="the file does not exist",
            todo="restore it from a backup of the store, then repeat the command",
        )
    return by_urn


def _put(store: JobStore, item: tuple[str, StoredSchema]) -> None:
    path, document = item
    store.fs.make_folders(path.rpartition("/")[0])
    if not store.fs.put_if_absent(path, encode_document(document)) and read_stored_schema(store.fs, path) != document:
        raise CorruptError(
            "inferred columns cannot be copied to a dataset's new name",
            id="FOREIGN_FILE_FOUND",
            dataset=document.dataset,
            converter=document.converter,
            path=path,
            expected="no file, or the same columns",
            found="other columns",
            todo="find out what created the file, move it away and repeat the command",
        )
