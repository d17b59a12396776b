"""Tables of PostgreSQL: binary COPY and the ledger's row in one transaction; or, in two phases, rows and a proof.

Must not commit rows and their proof apart. Start reading at `sink`.
"""

SETTINGS = "sink:PostgresqlSink"
