"""Base classes of sinks, writers and committers, the rule of ledgers, and retries.

Must not know a target. Start reading at `committer_sink`.
"""
