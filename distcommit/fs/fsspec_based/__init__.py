"""File systems of fsspec, for the folders of a job and for input files.

Must not rely on a capability that was not probed. Start reading at `fsspec_file_system`.
"""
