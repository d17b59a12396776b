"""Tables of PostgreSQL: binary COPY and the ledger's row in one transaction."""

SETTINGS = "sink:PostgresqlSink"
