"""How a job stands: status, datasets, steps, runs and problems.

Must not change anything, and must not need a source. Start reading at `status`.
"""
