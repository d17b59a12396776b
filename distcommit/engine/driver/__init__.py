"""One run as the driver sees it: its phases, their counts, and what observers are told.

Must not read records or publish files: executor functions do. Start reading at `run`.
"""
