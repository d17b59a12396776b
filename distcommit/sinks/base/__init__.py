"""Base classes of sinks, writers and committers, the commit rule of ledgers (`idempotent_commit`), and retries.

Must not depend on a particular target. Start reading at `committer_sink`.
"""
