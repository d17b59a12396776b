"""Delta tables: executors write data files, and a committer adds them in one version for each table and call.

Must not commit on another version than the one whose ledger was read, nor delete a data file that a version has. Start
reading at `sink`.
"""

SETTINGS = "sink:DeltaSink"
