"""Task checkers by the type that a job file names: each module without a leading `_` is one, by its `SETTINGS`.

They see what one attempt at a work unit writes to a branch, and must not claim what spans work units, such as a column
that is unique in a whole dataset: they can't see it. Start reading at `row_count`.
"""
