"""Policy for new schemas of a dataset, compared with the schemas of its earlier records."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from distcommit.constructs.schemas.declared import is_narrower
from distcommit.constructs.schemas.evolution import compare_schemas
from distcommit.core.errors import CorruptError, RecordError
from distcommit.core.interfaces.constructs import InferredSchemaStore

Evolution = Literal["evolve", "pin", "fail"]
"""The policy for records with other columns than earlier records."""
OnIncompatible = Literal["reject", "fail", "accept"]
"""The policy of `evolve` for incompatible records."""
_SHOWN_REASONS = 3


@dataclass(slots=True)
class DatasetSchemas:
    """The schemas of one dataset. Not picklable.

    Each schema is stored before a record is accepted by it, so that all tasks of the run find it. The stored schema is
    the common schema of all records so far: only the newest one counts. If two tasks store at once, the second uses the
    first one's schema, as with inferred JSON (`constructs.json.inferred_json`).

    Attributes:
        evolution: the policy.
        on_incompatible: the policy of `evolve` for incompatible schemas.
        kept: the schema store; None: each work unit has its own schemas.
        ids: the ids of the known schemas, the newest last.
        newest: the newest schema; None: not read yet, or none exists.
    """

    evolution: Evolution
    on_incompatible: OnIncompatible
    kept: InferredSchemaStore | None = None
    ids: list[int] = field(default_factory=list)
    newest: pa.Schema | None = None
    _answers: dict[pa.Schema, str] = field(default_factory=dict)

    def know(self, ids: Sequence[int]) -> None:
        """Set the ids of the schemas of the dataset's published records."""
        self.ids, self.newest = sorted(ids), None
        self._answers.clear()

    @property
    def pinned(self) -> pa.Schema | None:
        """The schema that records are converted to; None before the first record, and without `pin`."""
        return self.newest if self.evolution == "pin" else None

    def admit(self, schema: pa.Schema) -> str:
        """Accept the records of a schema, or return their rejection reason.

        Raises:
            RecordError: if the policy fails the work unit.
            CorruptError: if a stored schema is missing or damaged.
        """
        if self.newest is None and self.ids and self.kept is not None:
            self.newest = _read(self.kept.schema(self.ids[-1]))
        if schema not in self._answers:
            self._answers[schema] = self._take_in(schema)
        return self._answers[schema]

    def _take_in(self, schema: pa.Schema) -> str:
        while self.newest is None or self.evolution != "pin":
            wanted, reason = self._with(schema)
            if reason or (self.newest is not None and wanted.equals(self.newest)):
                return reason
            self._put(wanted)
        return ""

    def _with(self, schema: pa.Schema) -> tuple[pa.Schema, str]:
        """Return the common schema of the earlier ones and this one, or a rejection reason."""
        if self.newest is None:
            return schema, ""
        both = compare_schemas(self.newest, schema)
        if self.evolution == "fail" and both.kind != "identical":
            problem = "records have other columns than earlier records, and evolution is fail"
            raise _failed(problem, self.newest, both.reasons or _changes(self.newest, schema))
        if both.merged is not None:
            return both.merged, ""
        if self.on_incompatible == "accept":
            return schema, ""
        if self.on_incompatible == "fail":
            problem = "records are not compatible with earlier records, and on_incompatible is fail"
            raise _failed(problem, self.newest, both.reasons)
        return schema, f"not compatible with earlier records: {_listed(both.reasons)}"

    def _put(self, wanted: pa.Schema) -> None:
        if self.kept is None:
            self.newest = wanted
            return
        number, stored = self.kept.put_next(self.ids[-1] if self.ids else 0, _written(wanted))
        self.ids.append(number)
        self.newest = _read(stored)


def convert_to_pinned(batch: pa.RecordBatch, pinned: pa.Schema) -> tuple[pa.RecordBatch, str]:
    """Convert records to the pinned schema. If that fails, return them unchanged with a rejection reason."""
    columns, reasons = [], []
    for wanted in pinned:
        indices = batch.schema.get_all_field_indices(wanted.name)
        column = batch.column(indices[0]) if len(indices) == 1 else pa.nulls(batch.num_rows, wanted.type)
        if column.null_count and not wanted.nullable:
            reasons.append(f"{wanted.name} is missing, and is not nullable")
        elif column.type != wanted.type and not is_narrower(column.type, wanted.type):
            reasons.append(f"{wanted.name} is {column.type} here, and {wanted.type} before")
        else:
            try:
                columns.append(column.cast(wanted.type))
            except pa.ArrowException as error:
                reasons.append(f"{wanted.name} can't be read as {wanted.type}: {error}")
    if reasons:
        return batch, f"can't be read with the pinned columns: {_listed(reasons)}"
    return pa.RecordBatch.from_arrays(columns, schema=pinned), ""


def _listed(reasons: Sequence[str]) -> str:
    more = f", and {len(reasons) - _SHOWN_REASONS} more" if len(reasons) > _SHOWN_REASONS else ""
    return f"{'; '.join(reasons[:_SHOWN_REASONS])}{more}"


def _changes(old: pa.Schema, new: pa.Schema) -> list[str]:
    """Return the differences between compatible columns."""
    before, now = ({column.name: column.remove_metadata() for column in schema} for schema in (old, new))
    changes = [f"{name} is new" for name in now if name not in before]
    changes += [f"{name} is missing" for name in before if name not in now]
    both = [name for name in now if name in before and now[name] != before[name]]
    return changes + [f"{name} is {_in_words(now[name])} here, and {_in_words(before[name])} before" for name in both]


def _in_words(column: pa.Field) -> str:
    return f"{column.type}{'' if column.nullable else ' not null'}"


def _failed(problem: str, known: pa.Schema, reasons: Sequence[str]) -> RecordError:
    return RecordError(
        problem,
        id="RECORD_SCHEMA_INCOMPATIBLE",
        expected=f"columns {', '.join(known.names)}"[:500],
        found=_listed(reasons),
        todo="check what the producer changed; `evolve` accepts compatible schemas, `accept` accepts all",
    )


def _written(schema: pa.Schema) -> Mapping[str, Any]:
    """Return a schema as plain data, with readable columns beside Arrow's bytes."""
    columns = {column.name: _in_words(column) for column in schema}
    return {"columns": columns, "arrow": b64encode(schema.serialize()).decode()}


def _read(written: Mapping[str, Any]) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(b64decode(written["arrow"], validate=True)))
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise CorruptError(
            "the stored schema of a dataset's records can't be read",
            id="SCHEMA_HISTORY_LOST",
            found=str(error),
            todo="restore the store from a backup, or remove the converter `schema`",
        ) from error
