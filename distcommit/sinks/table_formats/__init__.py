"""Base of the sinks of Iceberg and Delta tables: settings, writers, committers and ledgers.

Must not import a table format's client. Start reading at `committer`.
"""
