"""Delta tables: executors write data files, and a committer adds them in one version for each table and call.

`writer` writes data files into the table's folder. `committer` decides by the `ledger`, and commits on exactly the
version that was loaded (`tables`). Must not commit on another version than the one whose ledger was read, nor delete a
data file that a version has. Start reading at `sink`.
"""

SETTINGS = "sink:DeltaSink"
