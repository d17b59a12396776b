"""The folders of a job: claims, run markers, task output, tombstones, and safe deletion.

Must not follow a link out of a root. Start reading at `staging`.
"""
