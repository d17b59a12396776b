"""Schemas that converters have inferred from records, or met, one after the other for each dataset and converter.

<store>/schemas/<dataset>/<converter>/<number>.json

All tasks of a run go by the same ones: whoever is the first to put a number has said what it is, and others read it.
Numbers begin anew with each run, at its epoch times a thousand. A sequence records those that its records are of, as
it does with the ids of a registry, so that they move with DONE: what was put by a run whose sequence was never done is
known to no later one, and goes when that puts one itself. A converter that goes by the ids of a registry puts these,
for the run alone: as `{"id": ID}`. What becomes of them under another name, `stores.schemas.carried_schemas` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.constructs import KeptSchemas
from distcommit.core.ports import FileSystem
from distcommit.core.urn import folder_of
from distcommit.protocol.paths.store import SCHEMAS, number_of, numbered_name
from distcommit.protocol.paths.temporary import lasting_name
from distcommit.stores.state.documents import decode_document, encode_document

SCHEMA_VERSION = 1
_OF_A_RUN = 1000
"""How many a run can put of a dataset and converter."""


class KeptSchema(msgspec.Struct, frozen=True):
    """What a converter has inferred, as it writes it."""

    version: int
    dataset: str
    converter: str
    schema: dict[str, Any]


def first_number(epoch: int) -> int:
    """The first number of those that belong to an epoch."""
    return epoch * _OF_A_RUN


def kept_in(store_root: str, dataset_urn: str, converter: str) -> str:
    """The folder of what is kept of a dataset and a converter."""
    return f"{store_root}/{SCHEMAS}/{folder_of(dataset_urn)}/{converter}"


def read_kept(fs: FileSystem, path: str) -> KeptSchema | None:
    """What was put there, None if nothing was. Raises CorruptError, UnknownVersionError."""
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return None
    return decode_document(
        data, KeptSchema, SCHEMA_VERSION, "the columns that a dataset's records were read with", path
    )


def is_of_registry(schema: Mapping[str, Any]) -> bool:
    """Whether it only says which id of a registry's a run has met."""
    return schema.keys() == {"id"} and isinstance(schema["id"], int)


@dataclass(frozen=True, slots=True)
class SchemaStore:
    """What is kept, for the tasks of one run. `epoch`: its own."""

    fs: FileSystem
    store_root: str
    epoch: int
    read: dict[str, KeptSchema] = field(default_factory=dict)
    """By path, what was read before: it never changes."""

    def of(self, dataset_urn: str, converter: str) -> KeptSchemas:
        """Those of a dataset and a converter, by its name."""
        return _Kept(self, dataset_urn, converter, kept_in(self.store_root, dataset_urn, converter))


@dataclass(frozen=True, slots=True)
class _Kept:
    store: SchemaStore
    dataset_urn: str
    converter: str
    folder: str

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """What was put under that number.

        Raises:
            CorruptError: if it is gone, or not what was written.
        """
        path = f"{self.folder}/{numbered_name(schema_id)}"
        if path not in self.store.read:
            found = read_kept(self.store.fs, path)
            if found is None:
                raise CorruptError(
                    "the columns that a dataset's records were read with are gone",
                    dataset=self.dataset_urn,
                    converter=self.converter,
                    expected=path,
                    found="no such file",
                    todo="restore it from a backup of the store, or declare the converter's fields",
                )
            self.store.read[path] = found
        return self.store.read[path].schema

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Puts a schema behind the one that the run goes by, durably, unless another task has.

        Returns:
            what stands there: its number, and the schema.
        """
        fs, first = self.store.fs, first_number(self.store.epoch)
        number = max(after + 1, first)
        if number >= first + _OF_A_RUN:
            raise ConfigurationError(
                "the columns of a dataset's records change too often to be inferred",
                dataset=self.dataset_urn,
                converter=self.converter,
                expected=f"at most {_OF_A_RUN} other sets of fields in a run",
                todo="declare the converter's fields, or set evolution to pin",
            )
        if number == first:
            self._forget(after, first)
        fs.make_folders(self.folder)
        mine = KeptSchema(SCHEMA_VERSION, self.dataset_urn, self.converter, dict(schema))
        fs.put_if_absent(f"{self.folder}/{numbered_name(number)}", encode_document(mine))
        fs.sync([self.folder], self.store.store_root)  # before anything that names it is sealed
        return number, self.schema(number)

    def _forget(self, newest: int, first: int) -> None:
        """Deletes what runs since then have put: that they could not be closed with it is why it is not known."""
        for entry in self.store.fs.list_folder(self.folder):
            number = number_of(lasting_name(entry.name))  # also what one of them was about to put
            if number is not None and newest < number < first:
                self.store.fs.delete(f"{self.folder}/{entry.name}")
