"""Where records go: files with footers that name their offsets, tables and topics that are
committed at their target, a console to try a job out, or a sink of the user's own.

Must not know sources or logs. A package here is a type that a job file can name: its `SETTINGS` says which class its
section is. `base`, `databases` and `table_formats` hold what types share. Start reading at `files`, then
`base.committer_sink`, which sinks with a committer of their own begin with.
"""

SHARED = ("base", "databases", "table_formats")
"""Packages here that are no types."""
