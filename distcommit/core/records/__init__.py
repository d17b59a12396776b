"""Structures of commit logs and stored states.

Must not change without a new format version. Start reading at `log_records`.
"""
