"""Tables of MariaDB, and MySQL: rows and the ledger's row in one transaction of InnoDB; or, by XA, rows and a proof.

Must not alter a table within that transaction, which would commit it. Start reading at `sink`.
"""

SETTINGS = "sink:MariadbSink"
