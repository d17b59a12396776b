"""JSON records: their columns given or inferred, and their values exact or refused.

Must not round a value. Start reading at `json_records`.
"""
