"""Source of files that arrive in folders. Must not change or move them.

Start reading at `settings`, then `progress` (which files have been read), `plan_dataset` and `extractor`.
`path_patterns` lists files, `format_readers` reads them.
"""

SETTINGS = "settings:FilesSource"
