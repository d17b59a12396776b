"""JSON records: declared or inferred columns, exact values.

Readers must not round a value silently. Start reading at `json_records`.
"""
