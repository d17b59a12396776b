"""Policies for records with a new schema, and the schemas of a dataset's earlier records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.registry.registry_client import PinnedSchema
from distcommit.core.support.settings_model import SettingError, rule
from distcommit.schemas.evolution import compare_schemas
from distcommit.schemas.evolution_policy import EvolutionPolicy, other_schema_error
from distcommit.schemas.schema_history import SchemaHistory
from distcommit.schemas.schema_size_limits import MAX_COLUMNS, MAX_SCHEMAS


class EvolutionSettings(EvolutionPolicy, populate_by_name=True):
    """The policy for schemas that differ from earlier ones.

    Attributes:
        pinned: the pinned schema, `schema` in a job file. With `pin`, all records are read by it. With `fail`, no other
            is accepted.
        evolution: `evolve` accepts each schema that is compatible with the earlier ones, and reads a record by its
            writer's schema. `pin` reads all records by the pinned schema, and rejects records that do not fit. `fail`
            fails the work unit at a new schema. A schema is new if it is not the pinned one or, without a pinned one,
            not a schema of earlier records.
        on_incompatible: for `evolve`: records with an incompatible schema are rejected (`reject`; see `on_rejected`),
            fail the work unit (`fail`), or are accepted (`accept`).
    """

    pinned: PinnedSchema | None = Field(default=None, alias="schema")

    @rule
    def _schema_goes_with_evolution(self) -> Iterator[SettingError]:
        if self.evolution == "pin" and self.pinned is None:
            yield SettingError("must be set with evolution: pin", "schema")
        if self.evolution == "evolve" and self.pinned is not None:
            yield SettingError("must only be set with evolution: pin or fail", "schema")


class DatasetEvolution(EvolutionSettings, populate_by_name=True):
    """The policy of some datasets.

    Attributes:
        match: pattern of their topics, with `*` and `?`. The first policy that matches a topic is used.
    """

    match: str = Field(min_length=1)


@dataclass(slots=True)
class AdmittedSchemas:
    """The schemas of a dataset's records, oldest first.

    A new schema must be compatible with the newest one, and with those older ones that are compatible with the newest.
    With the policy `accept`, an incompatible schema becomes the newest. An admitted schema is not compared again.
    """

    ids: list[int] = field(default_factory=list)
    """Ids of the schemas."""
    refused: dict[int, str] = field(default_factory=dict)
    """Rejection reasons of other schemas, by id."""
    history: SchemaHistory[int] = field(default_factory=SchemaHistory.of_registry_ids)
    """Ids of the unpublished schemas of this run's records, in one order for all work units."""
    run_ids: list[int] = field(default_factory=list)
    """Ids in the history. A new schema must be compatible with these schemas as well."""
    _merged: tuple[tuple[int, ...], pa.Schema | None] = ((), None)

    def admit(
        self, schema_id: int, schema: pa.Schema, of: Callable[[int], pa.Schema | None], policy: EvolutionPolicy
    ) -> str:
        """Admit a schema and return an empty text, or return the reason why its records are rejected.

        Args:
            of: returns the columns of an earlier schema; None if the registry does not have it any more.

        Raises:
            RecordError: if the policy fails the work unit.
        """

        def next_id(newest: int | None) -> int | None:
            if newest is not None and newest not in self.run_ids:
                self.run_ids.append(newest)
            if schema_id in self.run_ids:
                return None
            earlier = f"a schema compatible with schema id {', '.join(map(str, self._all()[-1:]))}"
            if reason := policy.rejection_reason(self._reasons(schema, of), f"schema id {schema_id}", earlier):
                self.refused[schema_id] = reason
            return None if reason else schema_id

        if schema_id in self.ids:
            return ""
        if len(self.ids) >= MAX_SCHEMAS:
            limit = f"schema id {schema_id}: the dataset's records have {MAX_SCHEMAS} schemas, the limit"
            self.refused.setdefault(schema_id, limit)
        if schema_id not in self.refused and policy.on_incompatible != "accept":
            self.history.extend("evolve", next_id)
        if schema_id not in self.refused:
            self.ids.append(schema_id)
        return self.refused.get(schema_id, "")

    def require(self, schema_id: int, registry: str, they: str = "the earlier ones") -> None:
        """Admit a schema if there are no earlier ones. Otherwise raise RecordError if it is not one of them. `they` is
        the name of the earlier ones in the message.
        """
        if not self.ids:
            self.history.extend("pin", lambda _: schema_id)
        accepted: Sequence[int | None] = self.ids or [self.history.newest]
        if schema_id not in accepted:
            raise other_schema_error(
                f"a record's schema differs from {they}, and evolution is fail",
                f"schema id {', '.join(map(str, accepted))}",
                f"schema id {schema_id}",
                "pin the new version or set evolution: evolve",
                registry=registry,
            )
        if not self.ids:
            self.ids.append(schema_id)

    def _all(self) -> Sequence[int]:
        return [*dict.fromkeys((*self.ids, *self.run_ids))]

    def _reasons(self, schema: pa.Schema, of: Callable[[int], pa.Schema | None]) -> Sequence[str]:
        merged = self._merged_columns(of)
        if merged is None:
            return ()
        both = compare_schemas(merged, schema)
        if both.merged is not None and len(both.merged) > MAX_COLUMNS:
            return (f"together with the earlier schemas it has more than {MAX_COLUMNS} columns, which is the limit",)
        return both.reasons

    def _merged_columns(self, of: Callable[[int], pa.Schema | None]) -> pa.Schema | None:
        """Return the columns of all schemas together. Schemas that were merged before are not merged again."""
        ids = tuple(self._all())
        before, merged = self._merged
        is_whole = bool(before) and set(before) <= set(ids)
        for number in ids if is_whole else ():
            if number not in before and is_whole and (columns := of(number)) is not None:
                merged = columns if merged is None else compare_schemas(merged, columns).merged
                is_whole = merged is not None
        if not is_whole:  # the first time, or an incompatible schema was accepted: the newest decides
            merged = None
            for number in reversed(ids):
                merged = _joined(of(number), merged)
        self._merged = ids, merged
        return merged


def _joined(columns: pa.Schema | None, merged: pa.Schema | None) -> pa.Schema | None:
    """Return the columns of both schemas; if these are not compatible, `merged`, which is the newer one."""
    if columns is None or merged is None:
        return merged if columns is None else columns
    joined = compare_schemas(columns, merged).merged
    return merged if joined is None else joined
