"""Object stores: S3 and its protocol, and Azure Blob Storage.

Must not replace a published object. Start reading at `s3_file_system`.
"""
