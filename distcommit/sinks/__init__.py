"""Sinks: files with footers that record their offsets, tables and topics that are committed at their target, a console
for previews, and custom sinks.

Must not know sources or logs. Each package is a type that a job file can name, except those in `SHARED`; its `SETTINGS`
names the class of its section. Start reading at `files`, then `base.committer_sink`.
"""

SHARED = ("base", "databases", "table_formats")
"""Packages of base classes."""
