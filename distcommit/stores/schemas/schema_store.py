"""The schema history: schemas that converters have inferred or received, numbered by dataset and converter.

<store>/schemas/<dataset>/<converter>/<number>.json

All tasks of a run use the same schemas: the first task to put a number defines its schema, and the other tasks read it.
The numbers of a run start at its epoch times 1000. A sequence records the numbers that its records use, and later runs
know a number once such a sequence is done. If the sequence was never done, a later run deletes the number when it puts
its first schema. A converter with a schema registry puts the registry's ids, for the run alone, as `{"id": ID}`. For
renamed datasets see `stores.schemas.schema_copies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.constructs import InferredSchemaStore
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.store import SCHEMAS, number_of, numbered_name
from distcommit.protocol.paths.temporary_and_probes import lasting_name
from distcommit.stores.state.checksummed_json import decode_document, encode_document

SCHEMA_VERSION = 1
_NUMBERS_PER_RUN = 1000
"""Maximum number of schemas per run, dataset and converter."""


class StoredSchema(msgspec.Struct, frozen=True):
    """A stored schema.

    Attributes:
        version: format version.
        dataset: the dataset.
        converter: name of the converter.
        schema: the schema, in the converter's own form.
    """

    version: int
    dataset: str
    converter: str
    schema: dict[str, Any]


def first_number(epoch: int) -> int:
    return epoch * _NUMBERS_PER_RUN


def schema_folder(store_root: str, dataset_urn: str, converter: str) -> str:
    return f"{store_root}/{SCHEMAS}/{folder_of(dataset_urn)}/{converter}"


def read_stored_schema(fs: FileSystem, path: str) -> StoredSchema | None:
    """Return a schema; None if the file does not exist. Raise CorruptError or UnknownVersionError."""
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return None
    return decode_document(data, StoredSchema, SCHEMA_VERSION, "a schema of a dataset", path)


@dataclass(frozen=True, slots=True)
class SchemaStore:
    """The stored schemas, for the tasks of one run.

    Attributes:
        fs: file system of the store.
        store_root: folder of the store.
        epoch: the run's epoch.
        keeps_unsealed: whether schemas of runs that sealed nothing are kept, because a late attempt of this run's
            recovery may still seal finished work units of a killed run.
        read: cached schemas by path; they never change.
    """

    fs: FileSystem
    store_root: str
    epoch: int
    keeps_unsealed: bool = False
    read: dict[str, StoredSchema] = field(default_factory=dict)

    def of(self, dataset_urn: str, converter: str) -> InferredSchemaStore:
        return _DatasetSchemas(self, dataset_urn, converter, schema_folder(self.store_root, dataset_urn, converter))


@dataclass(frozen=True, slots=True)
class _DatasetSchemas:
    store: SchemaStore
    dataset_urn: str
    converter: str
    folder: str

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        path = f"{self.folder}/{numbered_name(schema_id)}"
        if path not in self.store.read:
            stored_schema = read_stored_schema(self.store.fs, path)
            if stored_schema is None:
                raise CorruptError(
                    "the inferred columns of a dataset are lost",
                    id="SCHEMA_HISTORY_LOST",
                    dataset=self.dataset_urn,
                    converter=self.converter,
                    expected=path,
                    found="the file does not exist",
                    todo="restore it from a backup of the store, or declare the converter's fields",
                )
            self.store.read[path] = stored_schema
        return self.store.read[path].schema

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Put the successor of schema `after`, durably, unless another task has put one.

        Returns:
            the number, and the schema stored under it.

        Raises:
            ConfigurationError: if the run's numbers are used up.
        """
        fs, first = self.store.fs, first_number(self.store.epoch)
        number = max(after + 1, first)
        if number >= first + _NUMBERS_PER_RUN:
            raise ConfigurationError(
                "the columns of a dataset's records change too often to be inferred",
                id="RECORD_COLUMNS_UNSTABLE",
                dataset=self.dataset_urn,
                converter=self.converter,
                expected=f"at most {_NUMBERS_PER_RUN} sets of fields in a run",
                todo="declare the converter's fields, or set evolution to pin",
            )
        if number == first and not self.store.keeps_unsealed:
            self._delete_unsealed(after, first)
        fs.make_folders(self.folder)
        new_schema = StoredSchema(SCHEMA_VERSION, self.dataset_urn, self.converter, dict(schema))
        fs.put_if_absent(f"{self.folder}/{numbered_name(number)}", encode_document(new_schema))
        fs.sync([self.folder], self.store.store_root)  # before anything that names it is sealed
        return number, self.schema(number)

    def _delete_unsealed(self, newest: int, first: int) -> None:
        for entry in self.store.fs.list_folder(self.folder):
            number = number_of(lasting_name(entry.name))  # of temporary files, too
            if number is not None and newest < number < first:
                self.store.fs.delete(f"{self.folder}/{entry.name}")
