"""Source of a database's tables and queries, read in ranges of a watermark column.

Must not lock or change what it reads. Start reading at `source`, then `plan_tables` (all tables), `plan_table` (one
table) and `extractor`. Only `database_connections` connects. `select_statements` has the statements that read rows;
`table_reflection`, `columns` and `query_columns` describe tables. `source` and `table_selection` must not import
SQLAlchemy, so that a job file can be read where SQLAlchemy is not installed.
"""

SETTINGS = "source:SqlSource"
