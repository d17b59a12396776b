"""Time limits of converters and checkers, the process that enforces them, and progress counters.

This package must not change records. Start reading at `time_limit`.
"""
