"""Schedules of jobs: timetables, and a schedule as a pure value.

Must not do I/O, read a clock, or know runs and their launcher: the caller passes the time. Start reading at `schedule`.
"""
