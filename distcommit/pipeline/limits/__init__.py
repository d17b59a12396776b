"""Time limits of constructs, the process that enforces them, and progress counters.

Must not change records. Start reading at `time_limit`.
"""
