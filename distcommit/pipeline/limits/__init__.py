"""Limits and progress of an attempt: time limits, the process that enforces them, counters.

Must not change records. Start reading at `time_limit`.
"""
