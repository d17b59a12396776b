"""Delta tables: executors write data files, and a committer adds them, one commit for each table and call.

`writer` writes data files into the table's own folder; `committer` asks the `ledger`, and commits on the very version
of the table that it has asked (`tables`); `leftovers` are what attempts left that lost. Must not commit on a version
that it has not asked, nor delete a data file that a version has. Start reading at `sink`.
"""

SETTINGS = "sink:DeltaSink"
"""The section `sink` of type `delta`."""
