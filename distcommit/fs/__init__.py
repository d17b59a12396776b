"""File systems behind `core.interfaces.file_system.FileSystem`: local, HDFS, object stores, and those of fsspec.

Must not know what is stored. Start reading at `local_disk.local_file_system`.
"""
