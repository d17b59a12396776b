"""Tables of MariaDB, and MySQL: rows and the ledger's row in one transaction of InnoDB."""

SETTINGS = "sink:MariadbSink"
