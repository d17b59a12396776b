"""The job file: its sections as typed settings, what its names stand for, and where it says that a job's folders are.

Must not look into what is stored, beyond opening it. Start reading at `config`.
"""
