"""What people see of a stored job without Spark: its runs, datasets, steps, logs, and what troubles it.

Must not change anything, and must not need a source. Start reading at `status`.
"""
