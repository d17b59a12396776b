"""Tables of a database, and queries, as datasets, read in ranges of a watermark column.

Must not lock what it reads, nor change it. Start reading at `source`, then `plan` and `extractor`; `database` is all
that connects, `tables`, `columns` and `query_columns` say what is there. `positions`, `queries`, `rules` and the
settings need no SQLAlchemy, so that a job file is read where none is installed.
"""

SETTINGS = "source:SqlSource"
