"""What is done with another schema than a dataset's records were of: the policy, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, Field, model_validator

from distcommit.constructs.registry.client import PinnedSchema
from distcommit.constructs.schemas.evolution import compared
from distcommit.core.errors import RecordError
from distcommit.core.interfaces.constructs import KeptSchemas
from distcommit.core.support.nesting import MAX_COLUMNS

_REASONS_TOLD = 3
MAX_SCHEMAS = 1_000
"""Schemas that the records of one dataset may have."""


class EvolutionSettings(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """A policy.

    Attributes:
        pinned: the one that `pin` reads by, and that `fail` keeps to; `schema` in a job file.
        evolution: `evolve` takes each schema that is compatible with those before, as its writer has it; `pin` reads
            all as the pinned one has it, and rejects what does not fit; `fail` fails the work unit at any other schema
            than the pinned one, or without that than those of the records before.
        on_incompatible: of `evolve`, what becomes of records whose schema is not compatible: they are rejected
            (`reject`: as `on_rejected` says), fail the work unit (`fail`), or are taken as they come (`accept`).
    """

    pinned: PinnedSchema | None = Field(default=None, alias="schema")
    evolution: Literal["evolve", "pin", "fail"] = "evolve"
    on_incompatible: Literal["reject", "fail", "accept"] = "reject"

    @model_validator(mode="after")
    def _settings_go_together(self) -> EvolutionSettings:
        if self.evolution == "pin" and self.pinned is None:
            raise ValueError("evolution: pin needs a schema (subject and version)")
        if self.evolution == "evolve" and self.pinned is not None:
            raise ValueError("evolution: pin and fail need a schema, and evolve takes each as it comes: leave one out")
        if self.evolution != "evolve" and "on_incompatible" in self.model_fields_set:
            raise ValueError(f"on_incompatible is of evolution: evolve, and this is {self.evolution}")
        return self


class DatasetEvolution(EvolutionSettings, frozen=True, extra="forbid", populate_by_name=True):
    """The policy of some datasets.

    Attributes:
        match: their topics, with `*` and `?`; the first that matches holds.
    """

    match: str = Field(min_length=1)


@dataclass(slots=True)
class SchemasOfRun:
    """Schemas that work units of a dataset have met in this run and that are not published, in one order for all that
    read the dataset: each is put where the others find it before a record is taken by it.

    Attributes:
        kept: where; None: each work unit by itself.
        ids: those that are known to be there.
    """

    kept: KeptSchemas | None = None
    ids: list[int] = field(default_factory=list)
    _number: int = 0

    def put(self, schema_id: int) -> bool:
        """Puts a schema behind those that are known.

        Returns:
            whether it is there now; else another work unit was first, and its schema is known from now on.
        """
        if self.kept is None or schema_id in self.ids:
            return True
        self._number, found = self.kept.put_next(self._number, {"id": schema_id})
        self.ids.append(found["id"])
        return self.ids[-1] == schema_id


@dataclass(slots=True)
class KnownSchemas:
    """The schemas of a dataset's records, those that came first in front.

    The newest decides: what comes has to be compatible with it, and with those before as far as these are themselves.
    So a person who lets an incompatible one in (`accept`) moves on to it. One that is known is never looked at again.

    Attributes:
        ids: theirs.
        refused: others that were met, and why they are turned away.
        of_run: those that other work units meet, beside which what comes has to go, too.
    """

    ids: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    of_run: SchemasOfRun = field(default_factory=SchemasOfRun)
    _merged: tuple[tuple[int, ...], pa.Schema | None] = ((), None)

    def admit(
        self, schema_id: int, schema: pa.Schema, of: Callable[[int], pa.Schema | None], policy: EvolutionSettings
    ) -> str:
        """Takes a schema in, or says why its records are turned away.

        Args:
            schema_id: its id.
            schema: the columns that it has.
            of: the columns of a known one; None if they can't be had any more.
            policy: `evolve`.

        Raises:
            RecordError: if the work unit is to fail.
        """
        if schema_id in self.ids:
            return ""
        if len(self.ids) >= MAX_SCHEMAS:
            self.refused.setdefault(
                schema_id, f"schema id {schema_id}: records of the dataset have {MAX_SCHEMAS} schemas, the most allowed"
            )
        while schema_id not in self.refused:
            reasons = () if policy.on_incompatible == "accept" else self._reasons(schema, of)
            if not reasons:
                if policy.on_incompatible != "accept" and not self.of_run.put(schema_id):
                    continue  # another work unit was first: also beside that one?
                self.ids.append(schema_id)
                return ""
            more = f", and {len(reasons) - _REASONS_TOLD} more" if len(reasons) > _REASONS_TOLD else ""
            said = f"{'; '.join(reasons[:_REASONS_TOLD])}{more}"
            if policy.on_incompatible == "fail":
                raise RecordError(
                    "a record's schema is not compatible with those before, and on_incompatible is fail",
                    expected=f"one that is compatible with schema id {self._all()[-1]}",
                    found=f"schema id {schema_id}: {said}",
                    todo="look at what the producer has changed; `accept` takes it as it comes",
                )
            self.refused[schema_id] = f"schema id {schema_id} is not compatible with those before: {said}"
        return self.refused[schema_id]

    def require(self, schema_id: int, registry: str, they: str = "those before") -> None:
        """Makes sure that it is one of those that are known; the first one is. `they`: what these are, in words.

        Raises:
            RecordError: if it is another one.
        """
        if not self.ids:
            self.of_run.put(schema_id)
        known = self.ids or self.of_run.ids[:1]
        if known and schema_id not in known:
            raise RecordError(
                f"a record is of another schema than {they}, and evolution is fail",
                registry=registry,
                expected=f"schema id {', '.join(map(str, known))}",
                found=f"schema id {schema_id}",
                todo="look at what the producer has changed, then pin that version, or let it evolve",
            )
        if not self.ids:
            self.ids.append(schema_id)

    def _all(self) -> Sequence[int]:
        return [*dict.fromkeys((*self.ids, *self.of_run.ids))]

    def _reasons(self, schema: pa.Schema, of: Callable[[int], pa.Schema | None]) -> Sequence[str]:
        merged = self._known_columns(of)
        if merged is None:
            return ()
        both = compared(merged, schema)
        if both.merged is not None and len(both.merged) > MAX_COLUMNS:
            return (f"together with those before it has more than {MAX_COLUMNS} columns, the most allowed",)
        return both.reasons

    def _known_columns(self, of: Callable[[int], pa.Schema | None]) -> pa.Schema | None:
        """Return the columns of all known schemas together. What was joined before is not joined again."""
        known = tuple(self._all())
        before, merged = self._merged
        is_whole = bool(before) and set(before) <= set(known)
        for each in dict.fromkeys(known) if is_whole else ():
            if each not in before and is_whole and (columns := of(each)) is not None:
                merged = columns if merged is None else compared(merged, columns).merged
                is_whole = merged is not None
        if not is_whole:  # the first time, and where an incompatible one was let in: the newest decides
            merged = None
            for each in reversed(known):
                merged = _joined(of(each), merged)
        self._merged = known, merged
        return merged


def _joined(columns: pa.Schema | None, merged: pa.Schema | None) -> pa.Schema | None:
    """Return both together; the newer, `merged`, where they don't go together."""
    if columns is None or merged is None:
        return merged if columns is None else columns
    joined = compared(columns, merged).merged
    return merged if joined is None else joined
