"""Structures of commit logs, stored states and run records.

Must not change without a new format version. Start reading at `log_records`.
"""
