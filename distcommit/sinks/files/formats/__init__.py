"""Encoders and readers of file formats.

Must not know of attempts or folders. Start reading at `encoders`.
"""
