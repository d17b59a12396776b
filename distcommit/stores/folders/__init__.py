"""The folders of a job: their ownership, task output, tombstones, and safe deletion.

No function follows a link out of a root. Start reading at `staging`.
"""
