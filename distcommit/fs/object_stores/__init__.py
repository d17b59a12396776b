"""Object stores with the S3 protocol.

Must not copy or rename objects. Start reading at `s3_file_system`.
"""
