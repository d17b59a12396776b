"""The audit: compares the published output with the store. Its parts are in `files` and `offsets`. Must not change
anything. Start reading at `audit`.
"""
