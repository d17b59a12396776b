"""Object stores: S3 and its protocol, Azure Blob Storage, and Google Cloud Storage.

Must not replace a published object. Start reading at `s3_file_system`.
"""
