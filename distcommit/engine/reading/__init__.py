"""Reading: tasks read their work units and record the outcome of each attempt.

Must not seal: committers do. Start reading at `ingest`.
"""
