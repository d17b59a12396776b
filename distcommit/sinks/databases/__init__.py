"""Base of the database sinks.

Must not import a driver. Start reading at `table_committer`.
"""
