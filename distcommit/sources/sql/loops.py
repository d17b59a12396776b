"""Tables that settings and queries name as input: a sink must not write to them."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from distcommit.core.interfaces.targets import Target, database_address
from distcommit.sources.sql.queries import tables_in
from distcommit.sources.sql.rules import Tables


def reads_table(target: Target, url: str, schema: str | None, selection: Tables) -> bool:
    """Return whether a table is read directly, or by a query that names it after FROM or JOIN.

    Tables are compared by name. Without `schema`, a table of any schema counts as read. Names in queries are compared
    without case. Tables behind a view are not found.

    Args:
        target: the table that a sink writes to.
        url: URL of the database that is read.
        schema: schema of its tables; None for the connection's own.
        selection: tables and queries that are read.
    """
    its_schema, _, table = target.name.rpartition(".")
    if target.kind != "table" or not target.is_in(database_address(url)):
        return False
    parts = urlsplit(url)
    if parts.scheme == "mysql":
        its_schema = its_schema or unquote(parts.path.strip("/"))
    queries = (selection.rules_of(name).query for name in selection.queries)
    for named in (found for query in queries if query for found in tables_in(query.body, parts.scheme)):
        if table.lower() == named[1].lower() and not (
            its_schema and named[0] and named[0].lower() != its_schema.lower()
        ):
            return True
    return selection.has_table(table) and (its_schema == schema or not (its_schema and schema))
