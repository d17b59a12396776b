"""File formats, written by rows and read back.

Must not know of attempts or folders. Start reading at `encoders`.
"""
