"""Reading: tasks read work units, retry, and record attempts.

Must not seal sequences: committers do. Start reading at `ingest`.
"""
