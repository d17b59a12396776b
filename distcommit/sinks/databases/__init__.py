"""Base of the database sinks: settings, staged rows, committers and their ledger, two-phase commit.

Must not import a driver. Start reading at `table_committer`.
"""
