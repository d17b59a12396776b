"""Time limits of constructs.

Must not change records. Start reading at `time_limit`.
"""
