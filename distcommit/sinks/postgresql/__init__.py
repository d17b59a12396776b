"""Tables of PostgreSQL: binary COPY and the ledger row in one transaction, or rows and a proof in a prepared one.

Must not commit rows and their proof in different transactions. Start reading at `sink`.
"""

SETTINGS = "sink:PostgresqlSink"
