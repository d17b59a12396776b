"""Tables of PostgreSQL: binary COPY, with the ledger row or proof in the same transaction.

Must not commit rows and their proof in different transactions. Start reading at `sink`.
"""

SETTINGS = "sink:PostgresqlSink"
