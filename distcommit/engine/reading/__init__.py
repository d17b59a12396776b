"""Reading: tasks read their work units and report each attempt.

Must not seal: committers do. Start reading at `ingest`.
"""
