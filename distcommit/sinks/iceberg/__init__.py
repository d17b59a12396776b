"""Iceberg tables, which get one snapshot for each commit call.

Must not create a snapshot without its ledger rows, nor delete a data file that a snapshot has. Start reading at `sink`.
"""

SETTINGS = "sink:IcebergSink"
