"""Conversion of Gobblin's query-based sources to the sources `sql` and `spark`."""

from __future__ import annotations

import re

from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, integer_of, listed, truth
from distcommit.app.migration.gobblin.read_properties import Property

_DATABASES = {
    "MysqlSource": ("mysql", "3306"),
    "PostgresqlSource": ("postgresql", "5432"),
}
_READERS = {
    "SqlServerSource": "jdbc:sqlserver://{host}:{port};databaseName={database}",
    "OracleSource": "jdbc:oracle:thin:@{host}:{port}:{sid}",
    "TeradataSource": "jdbc:teradata://{host}/DBS_PORT={port},DATABASE={database}",
}
TABLE_SOURCES = frozenset({*_DATABASES, *_READERS})
"""Sources of a database's tables. Those that the source `sql` does not connect to are read by Spark's JDBC reader."""

PASSWORD = "${SOURCE_PASSWORD}"
_PART = "is a part of the database's URL"
_STEPS = {"date": 86400, "hour": 3600}


def put_tables(job: JobFileDraft, source: Property, kind: str) -> None:
    """Set `source` to one table, or one query, of a database.

    Raises:
        ConfigurationError: if the host, the database or the table is missing.
    """
    host, port, user, schema, sid = (
        job.pop(name)
        for name in (
            *("source.conn.host", "source.conn.port", "source.conn.username"),
            *("source.querybased.schema", "source.conn.sid"),
        )
    )
    entity, query = job.pop("source.entity"), job.pop("source.querybased.query")
    if host is None or entity is None or (schema is None and sid is None):
        missing = {
            "source.conn.host": host is None,
            "source.entity": entity is None,
            "source.querybased.schema (or source.conn.sid)": schema is None and sid is None,
        }
        raise source.wrong(
            "properties of the database source are missing",
            expected=", ".join(name for name, is_missing in missing.items() if is_missing),
            todo="set them in the job's file, or give the properties file that sets them with --sysconfig",
        )
    if kind in _DATABASES:
        scheme, default = _DATABASES[kind]
        authority = f"{user.value}@{host.value}" if user is not None else host.value
        database = schema.value if schema is not None else ""
        job.put(source, "source.type", "sql")
        job.put(host, "source.url", f"{scheme}://{authority}:{port.value if port else default}/{database}")
        if query is not None:
            job.put(query, "source.queries", {entity.value: query.value}, "conditions on the watermark are added here")
            job.skip(entity, "is the name of the query")
        else:
            job.put(entity, "source.tables", [entity.value])
    else:
        parts = {"host": host.value, "port": port.value if port else "", "sid": sid.value if sid else ""}
        url = _READERS[kind].format(**parts, database=schema.value if schema is not None else "")
        options = {"url": url, **({"user": user.value} if user is not None else {})}
        table = f"({query.value}) AS q" if query is not None else entity.value
        job.put(source, "source.type", "spark", "its JDBC driver goes into spark.conf, spark.jars")
        job.put(None, "source.format", "jdbc")
        job.put(host, "source.options", options)
        job.put(query or entity, "source.datasets", {entity.value: {"dbtable": table}})
    for entry in (port, user, schema, sid):
        job.skip(entry, _PART)
    secret = job.pop("source.conn.password")
    if secret is not None:
        job.secret(secret, "source.password", PASSWORD)
    _reading(job, source, is_sql=kind in _DATABASES)


def _reading(job: JobFileDraft, source: Property, *, is_sql: bool) -> None:
    """Set how the table is read: whole, or in ranges of the delta field."""
    table_type, full, extract_type = (
        job.pop(name) for name in ("extract.table.type", "extract.is.full", "source.querybased.extract.type")
    )
    kind = table_type.value.lower() if table_type is not None else "append_only"
    is_whole = kind == "snapshot_only" or (full is not None and truth(full))
    if is_whole:
        kind = "snapshot_only"
        job.reads_whole_tables = True
    note = "each run replaces the output by the whole table" if is_whole else ""
    for entry in (table_type, full):
        if is_sql and entry is not None:
            job.put(entry, "source.table_type", kind, note)
        else:
            job.skip(entry, note or "rows above the watermark are added")
    limit, backup, watermark_type = (
        job.pop(f"source.querybased.{name}")
        for name in ("append.max.watermark.limit", "low.watermark.backup.secs", "watermark.type")
    )
    if is_whole:
        for entry in (extract_type, limit, backup, watermark_type):
            job.skip(entry, "the whole table is read")
    else:
        _watermark(job, source)
        _lookback(job, extract_type, limit, backup, watermark_type)
    fetch = job.pop("source.querybased.fetch.size") or job.pop("source.querybased.jdbc.resultset.fetch.size")
    if fetch is not None and is_sql:
        job.put(fetch, "source.batch_rows", integer_of(fetch, least=1))
    else:
        job.skip(fetch, "source.options.fetchsize")


def _watermark(job: JobFileDraft, source: Property) -> None:
    delta = job.peek("extract.delta.fields")
    if delta is None:
        raise source.wrong(
            "a table that is not read whole needs a watermark column",
            expected="extract.delta.fields, or extract.is.full=true",
        )
    fields = listed(delta)
    job.put(delta, "source.watermark", fields[0], "the first field" if len(fields) > 1 else "")


def _lookback(job: JobFileDraft, *entries: Property | None) -> None:
    """Set the distance to the newest value: the longest of those that the properties ask for."""
    extract_type, limit, backup, watermark_type = entries
    seconds: dict[Property, int] = {}
    if backup is not None:
        seconds[backup] = integer_of(backup)
    if watermark_type is not None and watermark_type.value.lower() in _STEPS:
        seconds[watermark_type] = _STEPS[watermark_type.value.lower()]
    else:
        job.skip(watermark_type, "needs no setting: the column's own type counts")
    if limit is not None:
        match = re.fullmatch(r"CURRENT_?(DATE|HOUR)\s*-\s*(\d+)", limit.value.strip(), re.IGNORECASE)
        if match is None:
            raise limit.wrong("the limit can't be converted", expected="CURRENTDATE-N or CURRENTHOUR-N")
        seconds[limit] = int(match[2]) * _STEPS[match[1].lower()]
    lookback = max(seconds.values(), default=0)
    job.put(None, "source.lookback", lookback)
    for entry in seconds:
        job.put(entry, "source.lookback", lookback, "newer rows wait for a later run; none is read twice")
    job.skip(extract_type, "needs no setting: rows are read in ranges of source.watermark")
