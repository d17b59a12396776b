"""The audit: what is published, compared with what the store and the source say.

Must not change anything. Start reading at `audit`.
"""
