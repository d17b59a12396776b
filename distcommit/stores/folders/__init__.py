"""The folders of a job.

Must not follow a link out of a root. Start reading at `staging`.
"""
