"""Tables of MariaDB and MySQL, with the ledger row or proof in the same transaction as the rows.

Must not alter a table within the transaction of rows, because that would commit it. Start reading at `sink`.
"""

SETTINGS = "sink:MariadbSink"
