"""Source of a database's tables and queries, read in ranges of a watermark column.

Must not lock or change what it reads. Start reading at `source`, then `plan` and `extractor`. Only `database` connects;
`tables`, `columns` and `query_columns` describe tables. `queries`, `rules` and the settings must not import
SQLAlchemy, so that a job file is read where it is not installed.
"""

SETTINGS = "source:SqlSource"
