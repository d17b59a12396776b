"""Policy for records whose schema differs from those of the dataset's earlier records."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from distcommit.core.errors import CorruptError, RecordError
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.schemas.evolution import compare_schemas
from distcommit.schemas.schema_history import Evolution, SchemaHistory

OnIncompatible = Literal["reject", "fail", "accept"]
_SHOWN_REASONS = 3


class EvolutionPolicy(SettingsModel):
    """The policy for schemas that differ from earlier ones.

    Attributes:
        evolution: the policy for records with other columns than earlier records. `evolve` accepts them unchanged if
            both can be read as one table. `pin` converts them to the earlier columns, and rejects those that do not
            fit. `fail` fails the work unit.
        on_incompatible: the policy of `evolve` for incompatible records: `reject` them (as `on_rejected` says), `fail`
            the work unit, or `accept` them unchanged.
    """

    evolution: Evolution = "evolve"
    on_incompatible: OnIncompatible = "reject"

    @rule
    def _fits_evolution(self) -> Iterator[SettingError]:
        if self.evolution != "evolve" and "on_incompatible" in self.model_fields_set:
            yield SettingError("must only be set with evolution: evolve", "on_incompatible")

    def rejection_reason(self, incompatibilities: Sequence[str], schema: str, earlier: str) -> str:
        """Return the reason why records of a schema are rejected; empty if they are accepted.

        Args:
            schema: short description of the schema; empty for the columns of a batch.
            earlier: short description of the earlier schemas.

        Raises:
            RecordError: if the policy fails the work unit.
        """
        if not incompatibilities or self.on_incompatible == "accept":
            return ""
        reasons = list_reasons(incompatibilities)
        if self.on_incompatible == "fail":
            raise other_schema_error(
                "records are not compatible with earlier records, and on_incompatible is fail",
                earlier,
                f"{schema}: {reasons}" if schema else reasons,
                "set on_incompatible: accept",
            )
        return f"{f'{schema} is ' if schema else ''}not compatible with earlier records: {reasons}"


@dataclass(slots=True)
class DatasetSchemas:
    """The Arrow schemas of one dataset's records. Not picklable. Each is the common schema of all earlier records; the
    schema of accepted incompatible records replaces it.

    Attributes:
        policy: the policy for records of another schema.
        history: the dataset's stored schemas, oldest first.
    """

    policy: EvolutionPolicy
    history: SchemaHistory[pa.Schema] = field(default_factory=lambda: SchemaHistory(_decoded, _encoded))
    _reasons: dict[pa.Schema, str] = field(default_factory=dict)

    @property
    def pinned(self) -> pa.Schema | None:
        """The schema that records are converted to; None before the first record, and if the policy is not `pin`."""
        return self.history.newest if self.policy.evolution == "pin" else None

    def admit(self, schema: pa.Schema) -> str:
        """Return why records of a schema are rejected; empty if they are accepted. The history then includes their
        schema, with `pin` only the first one.

        Raises:
            RecordError: if the policy fails the work unit.
            CorruptError: if a stored schema is missing or damaged.
        """
        self.history.read_newest()
        if schema not in self._reasons:
            self.history.extend(self.policy.evolution, lambda newest: self._merge(newest, schema))
        return self._reasons.setdefault(schema, "")

    def _merge(self, newest: pa.Schema | None, schema: pa.Schema) -> pa.Schema | None:
        """Return the common schema of both; None if records of `schema` are rejected."""
        if newest is None:
            return schema
        both = compare_schemas(newest, schema)
        earlier = f"columns {', '.join(newest.names)}"[:500]
        if self.policy.evolution == "fail" and both.kind != "identical":
            raise other_schema_error(
                "records have other columns than earlier records, and evolution is fail",
                earlier,
                list_reasons(both.reasons or _changes(newest, schema)),
                "set evolution: evolve",
            )
        if reason := self.policy.rejection_reason(both.reasons, "", earlier):
            self._reasons[schema] = reason
            return None
        return schema if both.merged is None else both.merged


def other_schema_error(failure: str, expected: str, found: str, setting: str, **ids: object) -> RecordError:
    """Return the error of a policy that fails the work unit. `setting` is the remedy that accepts the records."""
    todo = f"check the change in the producer; to accept it, {setting}"
    return RecordError(failure, id="RECORD_SCHEMA_INCOMPATIBLE", expected=expected, found=found, todo=todo, **ids)


def list_reasons(reasons: Sequence[str]) -> str:
    """Join the first reasons, and the number of the others."""
    more = f", and {len(reasons) - _SHOWN_REASONS} more" if len(reasons) > _SHOWN_REASONS else ""
    return f"{'; '.join(reasons[:_SHOWN_REASONS])}{more}"


def _changes(old: pa.Schema, new: pa.Schema) -> list[str]:
    before, now = ({column.name: column.remove_metadata() for column in schema} for schema in (old, new))
    changes = [f"{name} is new" for name in now if name not in before]
    changes += [f"{name} is missing" for name in before if name not in now]
    both = [name for name in now if name in before and now[name] != before[name]]
    return changes + [f"{name} is {_in_words(now[name])} here, and {_in_words(before[name])} before" for name in both]


def _in_words(column: pa.Field) -> str:
    return f"{column.type}{'' if column.nullable else ' not null'}"


def _encoded(schema: pa.Schema) -> Mapping[str, Any]:
    columns = {column.name: _in_words(column) for column in schema}
    return {"columns": columns, "arrow": b64encode(schema.serialize()).decode()}


def _decoded(stored: Mapping[str, Any]) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(b64decode(stored["arrow"], validate=True)))
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise CorruptError(
            "the stored schema of a dataset's records can't be read",
            id="SCHEMA_HISTORY_LOST",
            found=str(error),
            todo="restore the store from a backup, or remove the converter `schema`",
        ) from error
