"""Columns of a dataset's published files. Readers must be able to join new files with them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pyarrow as pa

from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.schemas.evolution_policy import decode_columns, encode_columns, list_reasons
from distcommit.schemas.history import SchemaHistory
from distcommit.schemas.type_tables import plain_type, replace_types

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PublishedColumns:
    """The columns of a dataset's files in one branch, each of the widest type so far. Not picklable.

    New columns and all types that `distcommit.read` can join are accepted. `evolution` accepts fewer types. If the
    stored columns are lost, those of the next records take their place, because the output does not depend on them.

    Attributes:
        converters: names of the converters of the records, for errors.
        history: the stored columns, oldest first.
    """

    converters: str
    history: SchemaHistory[pa.Schema] = field(default_factory=lambda: SchemaHistory(decode_columns, encode_columns))
    _admitted: pa.Schema | None = None

    def admit(self, schema: pa.Schema) -> None:
        """Store the columns of records that are to be written.

        Raises:
            ConfigurationError: if readers cannot join a column with the one of published files.
        """
        if self._admitted is not None and schema.equals(self._admitted):
            return
        columns = pa.schema([(f.name, replace_types(f.type, plain_type, all_nullable=True)) for f in schema])
        try:
            self.history.read_newest()
        except CorruptError:
            logger.warning("the stored columns of published files are lost", exc_info=True)
        self.history.extend("evolve", lambda newest: _joined(newest, columns, self.converters))
        self._admitted = schema


def _joined(published: pa.Schema | None, columns: pa.Schema, converters: str) -> pa.Schema:
    if published is None:
        return columns
    try:
        return _unify(published, columns)
    except pa.ArrowException as error:
        changed = [
            name for name in columns.names if name in published.names and not _has_join(published, columns, name)
        ]
        if not changed:  # such as a name that occurs twice: not a change of a type
            return published
        types = [
            f"{name} is {columns.field(name).type} here, and {published.field(name).type} before" for name in changed
        ]
        raise ConfigurationError(
            "readers cannot join the new column types with the published files",
            id="COLUMN_TYPE_CHANGED",
            column=", ".join(changed[:3]),
            converters=converters,
            expected="types that can be read together with those of the published files",
            found=list_reasons(types),
            todo="restore the setting of the converter that changed the type, or convert the column back with `cast`;"
            " to publish all records with the new type, begin again in new folders: distcommit run JOB.yaml"
            " --set paths.store=NEW --set paths.staging=NEW --set paths.output=NEW",
        ) from error


def _has_join(published: pa.Schema, columns: pa.Schema, name: str) -> bool:
    try:
        _unify(*(pa.schema([schema.field(name)]) for schema in (published, columns)))
    except pa.ArrowException:
        return False
    return True


def _unify(published: pa.Schema, columns: pa.Schema) -> pa.Schema:
    return pa.unify_schemas([published, columns], promote_options="permissive")
