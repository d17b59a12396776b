"""The local file system, by the system calls of POSIX.

Must not follow links out of a root when it deletes. Start reading at `local`.
"""
