"""Iceberg tables: executors write data files, and a committer adds them in one snapshot for each table and call.

`writer` writes data files into the table's folder. `committer` decides by the ledger, creates `snapshots`, and changes
many tables at once by `catalog`. `orphaned_files` finds files of aborted attempts. Must not create a snapshot without
its ledger rows, nor delete a data file that a snapshot has. Start reading at `sink`.
"""

SETTINGS = "sink:IcebergSink"
