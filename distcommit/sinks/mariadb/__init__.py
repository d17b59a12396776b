"""Tables of MariaDB and MySQL.

Must not alter a table within the transaction of rows, because that would commit it. Start reading at `sink`.
"""

SETTINGS = "sink:MariadbSink"
