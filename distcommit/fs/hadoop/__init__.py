"""HDFS over RPC and HTTP.

Must not replace a file by a rename. Start reading at `hdfs_file_system`.
"""
