"""JSON records: declared or inferred columns, exact values.

Values are never rounded silently. Start reading at `json_records`.
"""
