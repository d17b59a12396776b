"""Where records go: files with footers that name their offsets, or a sink of the user's own.

Must not know sources or logs. Start reading at `files`.
"""
