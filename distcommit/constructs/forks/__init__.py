"""Fork operators by the type that a job file names: each module without a leading `_` is one, by its `SETTINGS`.

They choose, and must not change records, nor look at what branches do with them. Start reading at
`first_match`.
"""
