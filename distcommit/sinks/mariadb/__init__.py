"""Tables of MariaDB and MySQL: rows and the ledger row in one InnoDB transaction, or rows and a proof in an XA
transaction.

Must not alter a table within such a transaction, because that would commit it. Start reading at `sink`.
"""

SETTINGS = "sink:MariadbSink"
