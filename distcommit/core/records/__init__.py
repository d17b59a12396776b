"""What commit logs and stored states are made of.

Must not change without a new format version. Start reading at `log_records`.
"""
