"""Base of the Iceberg and Delta sinks.

Must not import a table format's client. Start reading at `committer`.
"""
