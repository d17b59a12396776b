"""Numbered schemas of one dataset and converter, which all tasks of a run share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from distcommit.core.interfaces.constructs import InferredSchemaStore

Evolution = Literal["evolve", "pin", "fail"]
"""Policy for records with another schema than earlier records: see `EvolutionPolicy.evolution`."""
SchemaT = TypeVar("SchemaT")


def is_registry_id(stored: Mapping[str, Any]) -> bool:
    """Return whether a stored schema is only the id of a schema in a registry."""
    return stored.keys() == {"id"} and isinstance(stored["id"], int)


@dataclass(slots=True)
class SchemaHistory(Generic[SchemaT]):
    """The schemas of one dataset and converter. Not picklable.

    A schema is stored before a record with it is accepted, so that all tasks of the run find it. If the schemas are
    columns and not ids, the newest one contains the earlier ones, unless incompatible records were accepted. If two
    tasks store a schema at the same time, the second uses the schema of the first.

    Attributes:
        decode: returns a schema from its stored form.
        encode: returns the stored form of a schema.
        store: the schema store; None if each work unit has its own schemas.
        ids: ids of the schemas, the newest last.
        newest: the newest schema; None if there is none or it was not read yet.
    """

    decode: Callable[[Mapping[str, Any]], SchemaT]
    encode: Callable[[SchemaT], Mapping[str, Any]]
    store: InferredSchemaStore | None = None
    ids: list[int] = field(default_factory=list)
    newest: SchemaT | None = None

    @staticmethod
    def of_registry_ids() -> SchemaHistory[int]:
        """Return a history whose schemas are ids of registered schemas."""
        return SchemaHistory(lambda stored: int(stored["id"]), lambda schema_id: {"id": schema_id})

    def load_ids(self, ids: Sequence[int]) -> None:
        """Set the ids of the schemas that the dataset's published records have."""
        self.ids, self.newest = sorted(ids), None

    def read_newest(self) -> SchemaT | None:
        """Return the newest schema; None if there is none. Raises CorruptError if the stored schema is missing or
        damaged.
        """
        if self.newest is None and self.ids and self.store is not None:
            self.newest = self.decode(self.store.schema(self.ids[-1]))
        return self.newest

    def put(self, schema: SchemaT) -> SchemaT:
        """Store a schema after the newest one, unless another task stored one first. Return the newest schema."""
        self.newest = schema
        if self.store is not None:
            schema_id, stored = self.store.put_next(self.ids[-1] if self.ids else 0, self.encode(schema))
            self.ids.append(schema_id)
            self.newest = self.decode(stored)
        return self.newest

    def extend(self, evolution: Evolution, merge: Callable[[SchemaT | None], SchemaT | None]) -> None:
        """Store merged schemas until `merge` returns nothing new. With `pin`, only the first schema is stored.

        Args:
            merge: returns the newest schema merged with the new one; None if nothing must be stored.
        """
        while self.newest is None or evolution != "pin":
            requested = merge(self.newest)
            if requested is None or requested == self.newest:
                return
            self.put(requested)
