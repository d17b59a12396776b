"""Tables of PostgreSQL.

Must not commit rows and their proof in different transactions. Start reading at `sink`.
"""

SETTINGS = "sink:PostgresqlSink"
