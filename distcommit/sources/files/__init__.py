"""Files as they arrive in folders. Must not change or move them. Start reading at `source`, then `progress`: what of
them has been read; `plan` and `extractor`. `patterns` finds files, `readers` makes batches of them.
"""

SETTINGS = "source:FilesSource"
