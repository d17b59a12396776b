"""Sinks: files, tables and topics that are committed at their target, a console for previews, and custom sinks.

Must not know sources or logs. Start reading at `files`, then `base.committer_sink`.
"""

SHARED = ("base", "databases", "table_formats")
"""Packages of base classes."""
