"""What sinks share that put rows into the tables of a database.

Must not know a driver. Start reading at `table_committer`.
"""
