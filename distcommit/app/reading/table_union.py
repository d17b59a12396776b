"""Joins the schemas and records of files into one table, because columns can be added, removed or widened over time.

More types are joined than `schemas.evolution` allows in new files (such as int64 with float64), so that all published
files stay readable.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.evolution import nullable


def joined_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return a schema with all columns of the given schemas, each of the widest type. If schemas differ, all columns
    are nullable at any depth, as a file may lack them.

    Raises:
        ConfigurationError: if no type of a column is wider than its other types.
    """
    bare = [schema.remove_metadata() for schema in schemas]
    if all(schema.equals(bare[0]) for schema in bare):
        return bare[0] if bare else pa.schema([])
    try:
        return nullable(pa.unify_schemas([nullable(schema) for schema in bare], promote_options="permissive"))
    except pa.ArrowException as error:
        raise _no_table(error) from error


def joined_table(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the records of all tables, with null in columns that a table lacks. Raises ConfigurationError if a column
    has incompatible types.
    """
    if not tables:
        return pa.table({})
    if not all(table.schema.equals(tables[0].schema) for table in tables):
        tables = [table.cast(nullable(table.schema)) for table in tables]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise _no_table(error) from error


def _no_table(error: pa.ArrowException) -> ConfigurationError:
    return ConfigurationError(
        "these files can't be read as one table",
        expected="columns of the same types, or of such that one is wider than the other",
        found=str(error),
        todo="read datasets one by one, or read the files that `files()` returns. If a column of a dataset has changed"
        " its type, add the converter `cast`, which gives new files the old type",
    )
