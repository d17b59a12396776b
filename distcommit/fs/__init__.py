"""File systems: local, HDFS, WebHDFS, S3 and any of fsspec, behind `core.ports.FileSystem`, and what each one gives.

Must not know what is stored. Start reading at `local`.
"""
