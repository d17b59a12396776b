"""Base of the database sinks: settings, staged and prepared rows, committers and their ledger.

Must not import a driver. Start reading at `table_committer`.
"""
