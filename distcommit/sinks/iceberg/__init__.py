"""Iceberg tables: executors write data files, and a committer adds them, one snapshot for each table and call.

`writer` writes data files into the table's own folder; `committer` asks the `ledger`, has `snapshots` made, and swaps
the tables' pointers by `catalogs`, of many tables at once; `leftovers` are what attempts left that lost. Must not make
a snapshot without the ledger's rows in it, nor delete a data file that a snapshot has.
Start reading at `sink`.
"""

SETTINGS = "sink:IcebergSink"
