"""File systems of fsspec: for the folders of a job, and for files that are only read.

Must not trust what was not probed. Start reading at `any_fsspec`.
"""
