"""Source of files that arrive in folders. Must not change or move them.

Values of CSV are texts: the converter `parse` infers their types. Start reading at `source`, then `progress` (which
files have been read), `plan_dataset` and `extractor`. `path_patterns` lists files, `format_readers` reads them.
"""

SETTINGS = "source:FilesSource"
