"""Base of the Iceberg and Delta sinks: settings, writers, committers and ledgers.

Must not import a table format's client. Start reading at `committer`.
"""
