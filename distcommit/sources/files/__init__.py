"""Source of files that arrive in folders. Must not change or move them.

Start reading at `source`, then `progress`, `plan_dataset` and `extractor`.
"""

SETTINGS = "source:FilesSource"
