"""The driver of a run: its phases, the reports of their tasks, and the recorder of the run.

Must not read records or publish files: executor functions do. Start reading at `run`.
"""
