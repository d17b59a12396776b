"""Base of the Iceberg and Delta sinks: writers, ledgers, and a committer that retries conflicting commits.

Must not import a table format's client. Start reading at `committer`.
"""
