"""The driver of a run: its phases, the reports and progress of their tasks, and the recorder of the run.

The driver must not read records or publish files: functions on executors do. Start reading at `run`.
"""
