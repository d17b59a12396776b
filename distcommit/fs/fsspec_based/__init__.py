"""File systems of fsspec.

Must not rely on a capability that was not probed. Start reading at `fsspec_file_system`.
"""
