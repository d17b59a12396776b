"""Iceberg tables: executors write data files, and a committer adds them in one snapshot for each table and call.

Must not create a snapshot without its ledger rows, nor delete a data file that a snapshot has. Start reading at `sink`.
"""

SETTINGS = "sink:IcebergSink"
