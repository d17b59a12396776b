"""Decoder of JSON records to declared or inferred columns.

Readers must not round a value silently. Start reading at `json_reader`.
"""
