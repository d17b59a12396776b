"""Tables of an SQLite file, to try a job out: rows and the ledger's row in one transaction.

Must not commit rows and their proof apart. Start reading at `sink`.
"""

SETTINGS = "sink:SqliteSink"
