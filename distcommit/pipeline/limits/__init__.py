"""Time limits of converters and checkers, the process that enforces them, and progress counters.

Start reading at `time_limit`.
"""
