"""Tables of an SQLite file, for trying out a job.

Must not commit rows and their ledger row in different transactions. Start reading at `sink`.
"""

SETTINGS = "sink:SqliteSink"
