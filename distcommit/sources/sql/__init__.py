"""Source of a database's tables and queries, in ranges of a watermark column.

Must not lock or change what it reads. Start reading at `source`, then `plan_tables`, `plan_table` and `extractor`.
`source` and `table_selection` must not import SQLAlchemy, so that job files can be read without it.
"""

SETTINGS = "source:SqlSource"
