"""What sinks of every kind share: base classes of committers, sinks and writers, ledgers, retries.

Must not know a target. Start reading at `committer_sink`.
"""
