"""Conversion and classification of errors: of file systems, of foreign code, and of stored error texts.

Must not retry or log. Start reading at `storage_errors`.
"""
