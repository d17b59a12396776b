"""The driver of a run: its phases, their counts, and the events that observers receive.

Must not read records or publish files: executor functions do. Start reading at `run`.
"""
