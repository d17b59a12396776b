"""Reading: tasks read their work units and record the outcome of each attempt.

This package must not seal sequences: committers do. Start reading at `ingest`.
"""
