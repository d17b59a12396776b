"""Converters by the type that a job file names: each module without a leading `_` is one, by its `SETTINGS`.

They say of each record, by its row, what becomes of it, and must not know where it came from. Start reading
at `drop`, then `cast`.
"""
