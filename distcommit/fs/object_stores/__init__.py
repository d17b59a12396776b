"""Object stores: S3, Azure and Google Cloud Storage.

Must not replace a published object. Start reading at `s3_file_system`.
"""
