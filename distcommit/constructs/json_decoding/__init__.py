"""Decoder of JSON records.

Must not round a value silently. Start reading at `json_reader`.
"""
