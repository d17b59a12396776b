"""Object stores that speak S3.

Must not copy or rename objects. Start reading at `s3`.
"""
