"""Policies for records whose schema differs from the dataset's earlier ones, and the schemas that a dataset has met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, Field, model_validator

from distcommit.constructs.registry.client import PinnedSchema
from distcommit.constructs.schemas.evolution import compare_schemas
from distcommit.core.errors import RecordError
from distcommit.core.interfaces.constructs import InferredSchemaStore
from distcommit.core.support.nesting import MAX_COLUMNS

_MAX_REASONS = 3
MAX_SCHEMAS = 1_000
"""Schemas that the records of one dataset may have."""


class EvolutionSettings(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """The policy for schemas that differ from earlier ones.

    Attributes:
        pinned: the pinned schema, `schema` in a job file. `pin` reads all records by it; `fail` accepts no other.
        evolution: `evolve` accepts each schema that is compatible with the earlier ones, as its writer has it. `pin`
            reads all records as the pinned schema, and rejects those that do not fit. `fail` fails the work unit at a
            schema that is neither the pinned one nor, without a pinned one, that of earlier records.
        on_incompatible: for `evolve`: records whose schema is not compatible are rejected (`reject`, as `on_rejected`
            says), fail the work unit (`fail`), or are accepted (`accept`).
    """

    pinned: PinnedSchema | None = Field(default=None, alias="schema")
    evolution: Literal["evolve", "pin", "fail"] = "evolve"
    on_incompatible: Literal["reject", "fail", "accept"] = "reject"

    @model_validator(mode="after")
    def _settings_go_together(self) -> EvolutionSettings:
        if self.evolution == "pin" and self.pinned is None:
            raise ValueError("evolution: pin requires a schema (subject and version)")
        if self.evolution == "evolve" and self.pinned is not None:
            raise ValueError("schema must only be set with evolution: pin or fail, not with evolve; remove it")
        if self.evolution != "evolve" and "on_incompatible" in self.model_fields_set:
            raise ValueError(
                f"on_incompatible must only be set with evolution: evolve, not {self.evolution}; remove it"
            )
        return self


class DatasetEvolution(EvolutionSettings, frozen=True, extra="forbid", populate_by_name=True):
    """The policy of some datasets.

    Attributes:
        match: pattern of their topics, with `*` and `?`. The first policy that matches a topic is used.
    """

    match: str = Field(min_length=1)


@dataclass(slots=True)
class RunSchemas:
    """Unpublished schemas that work units of a dataset have met in this run, in one order for all of them.

    A schema is stored where the other work units find it before any record is accepted by it.
    """

    kept: InferredSchemaStore | None = None
    """The shared store; None if the work unit is on its own."""
    ids: list[int] = field(default_factory=list)
    """Ids that are known to be stored."""
    _number: int = 0

    def put(self, schema_id: int) -> bool:
        """Store a schema after the known ones.

        Returns:
            Whether it is stored. If False, another work unit was first, and its schema is in `ids` now.
        """
        if self.kept is None or schema_id in self.ids:
            return True
        self._number, stored = self.kept.put_next(self._number, {"id": schema_id})
        self.ids.append(stored["id"])
        return self.ids[-1] == schema_id


@dataclass(slots=True)
class AdmittedSchemas:
    """The schemas of a dataset's records, oldest first.

    A new schema must be compatible with the newest one, and with older ones that are compatible with the newest
    themselves. If an operator accepts an incompatible schema (`accept`), it is the newest from then on. A schema that
    was admitted is not compared again.
    """

    ids: list[int] = field(default_factory=list)
    """Ids of the schemas."""
    refused: dict[int, str] = field(default_factory=dict)
    """Rejection reasons of other schemas, by id."""
    of_run: RunSchemas = field(default_factory=RunSchemas)
    """Schemas of other work units of this run; a new schema must be compatible with them, too."""
    _merged: tuple[tuple[int, ...], pa.Schema | None] = ((), None)

    def admit(
        self, schema_id: int, schema: pa.Schema, of: Callable[[int], pa.Schema | None], policy: EvolutionSettings
    ) -> str:
        """Admit a schema, or return the reason why its records are rejected.

        Args:
            schema_id: id of the schema.
            schema: its columns.
            of: returns the columns of a known schema; None if the registry does not have it any more.
            policy: a policy of `evolve`.

        Raises:
            RecordError: if the policy fails the work unit.
        """
        if schema_id in self.ids:
            return ""
        if len(self.ids) >= MAX_SCHEMAS:
            self.refused.setdefault(
                schema_id,
                f"schema id {schema_id}: the dataset's records have {MAX_SCHEMAS} schemas, the limit",
            )
        while schema_id not in self.refused:
            reasons = () if policy.on_incompatible == "accept" else self._reasons(schema, of)
            if not reasons:
                if policy.on_incompatible != "accept" and not self.of_run.put(schema_id):
                    continue  # another work unit was first: compare with its schema, too
                self.ids.append(schema_id)
                return ""
            more = f", and {len(reasons) - _MAX_REASONS} more" if len(reasons) > _MAX_REASONS else ""
            summary = f"{'; '.join(reasons[:_MAX_REASONS])}{more}"
            if policy.on_incompatible == "fail":
                raise RecordError(
                    "a record's schema is not compatible with earlier ones, and on_incompatible is fail",
                    id="RECORD_SCHEMA_INCOMPATIBLE",
                    expected=f"a schema compatible with schema id {self._all()[-1]}",
                    found=f"schema id {schema_id}: {summary}",
                    todo="check the change in the producer; to accept the schema, set on_incompatible: accept",
                )
            self.refused[schema_id] = f"schema id {schema_id} is not compatible with earlier ones: {summary}"
        return self.refused[schema_id]

    def require(self, schema_id: int, registry: str, they: str = "the earlier ones") -> None:
        """Require that a schema is known. The first schema of all is. `they` names the known schemas in messages.

        Raises:
            RecordError: if it is not.
        """
        if not self.ids:
            self.of_run.put(schema_id)
        accepted = self.ids or self.of_run.ids[:1]
        if accepted and schema_id not in accepted:
            raise RecordError(
                f"a record's schema differs from {they}, and evolution is fail",
                id="RECORD_SCHEMA_INCOMPATIBLE",
                registry=registry,
                expected=f"schema id {', '.join(map(str, accepted))}",
                found=f"schema id {schema_id}",
                todo="check the change in the producer, then pin the new version or set evolution: evolve",
            )
        if not self.ids:
            self.ids.append(schema_id)

    def _all(self) -> Sequence[int]:
        return [*dict.fromkeys((*self.ids, *self.of_run.ids))]

    def _reasons(self, schema: pa.Schema, of: Callable[[int], pa.Schema | None]) -> Sequence[str]:
        merged = self._known_columns(of)
        if merged is None:
            return ()
        both = compare_schemas(merged, schema)
        if both.merged is not None and len(both.merged) > MAX_COLUMNS:
            return (f"together with the earlier schemas it has more than {MAX_COLUMNS} columns, which is the limit",)
        return both.reasons

    def _known_columns(self, of: Callable[[int], pa.Schema | None]) -> pa.Schema | None:
        """Return the columns of all known schemas together. Schemas that were merged before are not merged again."""
        known = tuple(self._all())
        before, merged = self._merged
        is_whole = bool(before) and set(before) <= set(known)
        for each in dict.fromkeys(known) if is_whole else ():
            if each not in before and is_whole and (columns := of(each)) is not None:
                merged = columns if merged is None else compare_schemas(merged, columns).merged
                is_whole = merged is not None
        if not is_whole:  # the first time, or an incompatible schema was accepted: the newest decides
            merged = None
            for each in reversed(known):
                merged = _joined(of(each), merged)
        self._merged = known, merged
        return merged


def _joined(columns: pa.Schema | None, merged: pa.Schema | None) -> pa.Schema | None:
    """Return both together; if they are not compatible, the newer one, `merged`."""
    if columns is None or merged is None:
        return merged if columns is None else columns
    joined = compare_schemas(columns, merged).merged
    return merged if joined is None else joined
