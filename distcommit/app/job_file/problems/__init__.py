"""Problems of a job file: all at once, each with its position, its key and a remedy.

`setting_problems` has the problem and its error, `invalid_settings` the texts for pydantic's errors, `key_positions` the
line and column of a key, and `renamed_settings` the former names of settings. Must not read anything but job files.
Start reading at `setting_problems`.
"""
