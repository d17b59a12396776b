"""Time limits of converters and checkers, and the process that enforces them.

This package must not change records. Start reading at `time_limit`.
"""
