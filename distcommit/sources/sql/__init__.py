"""Tables of a database as datasets, read in ranges of a watermark column.

Must not lock what it reads. Start reading at `source`, then `plan` and `extractor`; `database` is all that connects,
`tables` and `columns` say what is there. `positions` and the settings need no SQLAlchemy, so that a job file is read
where none is installed.
"""

SETTINGS = "source:SqlSource"
