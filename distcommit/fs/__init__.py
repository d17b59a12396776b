"""File systems behind `core.interfaces.file_system.FileSystem`: local, HDFS, S3, Azure, Google, and those of fsspec.

Must not know what is stored. Start reading at `local_disk.local_file_system`.
"""
