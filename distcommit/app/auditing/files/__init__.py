"""Published and staged files, as the audit and rebuilds read and classify them. Must not read ledgers of targets.
Start reading at `read_published_files`.
"""
