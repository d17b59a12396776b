"""Problems of a job file: all at once, each with its position, its key and a remedy.

Owns their texts, positions in YAML, and the former names of settings. It must not read anything but job files. Start at
`setting_problems`.
"""
