"""Tables of an SQLite file, to try a job out: rows and the ledger's row in one transaction."""

SETTINGS = "sink:SqliteSink"
