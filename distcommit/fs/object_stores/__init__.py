"""Object stores: S3 and Azure.

Must not replace a published object. Start reading at `s3_file_system`.
"""
