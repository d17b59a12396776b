"""Row checkers by the type that a job file names: each module without a leading `_` is one, by its `SETTINGS`."""
