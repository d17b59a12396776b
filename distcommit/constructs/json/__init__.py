"""JSON records: declared or inferred columns, exact values.

Must not round a value silently. Start reading at `json_records`.
"""
