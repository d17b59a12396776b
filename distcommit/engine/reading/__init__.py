"""Reading: tasks read their work units, retry, and record the outcome of each attempt. Work units that kill workers
are skipped.

This package must not seal sequences: committers do. Start reading at `ingest`.
"""
