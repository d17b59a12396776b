"""The schemas that a dataset's records have had, and what is done with others."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from distcommit.constructs.schemas.declared import is_narrower
from distcommit.constructs.schemas.evolution import compared
from distcommit.core.errors import CorruptError, RecordError
from distcommit.core.interfaces.constructs import KeptSchemas

Evolution = Literal["evolve", "pin", "fail"]
OnIncompatible = Literal["reject", "fail", "accept"]
_REASONS_TOLD = 3


@dataclass(slots=True)
class HeldSchemas:
    """Those of one dataset, each put where all tasks of the run find it before a record is taken by it. It is not sent
    to other processes.

    What is put is what all records so far can be read as, so that the newest one decides. It is as with inferred JSON
    (`constructs.json.inferred_json`): of two tasks that meet different ones at once, the second goes by the first
    one's.

    Attributes:
        evolution: the policy.
        on_incompatible: of `evolve`.
        kept: where they are put; None: each work unit by itself.
        ids: of those that are known, the newest last.
        newest: that one; None: not looked at yet, or there is none.
    """

    evolution: Evolution
    on_incompatible: OnIncompatible
    kept: KeptSchemas | None = None
    ids: list[int] = field(default_factory=list)
    newest: pa.Schema | None = None
    _answers: dict[pa.Schema, str] = field(default_factory=dict)

    def know(self, ids: Sequence[int]) -> None:
        """Takes in those that the dataset's published records are of."""
        self.ids, self.newest = sorted(ids), None
        self._answers.clear()

    @property
    def pinned(self) -> pa.Schema | None:
        """What records are made to, once one has come."""
        return self.newest if self.evolution == "pin" else None

    def admit(self, found: pa.Schema) -> str:
        """Takes records of a schema in, or says why they are turned away.

        Raises:
            RecordError: if the work unit is to fail.
            CorruptError: if a schema that is known is gone, or damaged.
        """
        if self.newest is None and self.ids and self.kept is not None:
            self.newest = _read(self.kept.schema(self.ids[-1]))
        if found not in self._answers:
            self._answers[found] = self._take_in(found)
        return self._answers[found]

    def _take_in(self, found: pa.Schema) -> str:
        while self.newest is None or self.evolution != "pin":
            wanted, reason = self._with(found)
            if reason or (self.newest is not None and wanted.equals(self.newest)):
                return reason
            self._put(wanted)
        return ""

    def _with(self, found: pa.Schema) -> tuple[pa.Schema, str]:
        """What those before and this one can be read as, or why nothing can."""
        if self.newest is None:
            return found, ""
        both = compared(self.newest, found)
        if self.evolution == "fail" and both.kind != "identical":
            what = "records have other columns than those before, and evolution is fail"
            raise _failed(what, self.newest, both.reasons or _changes(self.newest, found))
        if both.merged is not None:
            return both.merged, ""
        if self.on_incompatible == "accept":
            return found, ""
        if self.on_incompatible == "fail":
            what = "records are not compatible with those before, and on_incompatible is fail"
            raise _failed(what, self.newest, both.reasons)
        return found, f"not compatible with the records before: {_listed(both.reasons)}"

    def _put(self, wanted: pa.Schema) -> None:
        if self.kept is None:
            self.newest = wanted
            return
        number, stands = self.kept.put_next(self.ids[-1] if self.ids else 0, _written(wanted))
        self.ids.append(number)
        self.newest = _read(stands)


def read_as(batch: pa.RecordBatch, pinned: pa.Schema) -> tuple[pa.RecordBatch, str]:
    """The records with the columns of a schema, or themselves and why they can't have them."""
    columns, reasons = [], []
    for wanted in pinned:
        found = batch.schema.get_all_field_indices(wanted.name)
        column = batch.column(found[0]) if len(found) == 1 else pa.nulls(batch.num_rows, wanted.type)
        if column.null_count and not wanted.nullable:
            reasons.append(f"{wanted.name} is not there, and can't be null")
        elif column.type != wanted.type and not is_narrower(column.type, wanted.type):
            reasons.append(f"{wanted.name} is {column.type} here, and {wanted.type} before")
        else:
            try:
                columns.append(column.cast(wanted.type))
            except pa.ArrowException as error:
                reasons.append(f"{wanted.name} is not read as {wanted.type}: {error}")
    if reasons:
        return batch, f"it can't be read with the pinned columns: {_listed(reasons)}"
    return pa.RecordBatch.from_arrays(columns, schema=pinned), ""


def _listed(reasons: Sequence[str]) -> str:
    more = f", and {len(reasons) - _REASONS_TOLD} more" if len(reasons) > _REASONS_TOLD else ""
    return f"{'; '.join(reasons[:_REASONS_TOLD])}{more}"


def _changes(known: pa.Schema, found: pa.Schema) -> list[str]:
    """What is other in columns that are compatible."""
    before, now = ({each.name: each.remove_metadata() for each in schema} for schema in (known, found))
    changes = [f"{name} is new" for name in now if name not in before]
    changes += [f"{name} is not there" for name in before if name not in now]
    both = [name for name in now if name in before and now[name] != before[name]]
    return changes + [f"{name} is {_told(now[name])} here, and {_told(before[name])} before" for name in both]


def _told(column: pa.Field) -> str:
    return f"{column.type}{'' if column.nullable else ' not null'}"


def _failed(what: str, known: pa.Schema, reasons: Sequence[str]) -> RecordError:
    return RecordError(
        what,
        expected=f"columns {', '.join(known.names)}"[:500],
        found=_listed(reasons),
        todo="look at what the producer has changed; evolve takes what is compatible, and accept all",
    )


def _written(schema: pa.Schema) -> Mapping[str, Any]:
    """As plain data, and its columns for people."""
    columns = {each.name: f"{each.type}{'' if each.nullable else ' not null'}" for each in schema}
    return {"columns": columns, "arrow": b64encode(schema.serialize()).decode()}


def _read(written: Mapping[str, Any]) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(b64decode(written["arrow"], validate=True)))
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise CorruptError(
            "the columns that a dataset's records have had can't be read",
            found=str(error),
            todo="restore the store from a backup, or leave out the converter `schema`",
        ) from error
