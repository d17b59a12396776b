"""Delta tables: executors write data files, and a committer adds them, one commit for each table and call.

`writer` writes data files into the table's own folder; `committer` asks the `ledger`, and commits on the very version
of the table that it has asked (`tables`). Must not commit on a version that it has not asked. Start reading at `sink`.
"""

SETTINGS = "sink:DeltaSink"
"""The section `sink` of type `delta`."""
