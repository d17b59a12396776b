"""The local file system by POSIX calls.

Must not follow links out of a root when it deletes. Start reading at `local_file_system`.
"""
