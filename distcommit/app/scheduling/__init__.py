"""Schedules of jobs: timetables, and a schedule as a pure value.

Must not do I/O, read a clock (the caller passes the time), or depend on runs and their launcher. Start reading at
`schedule`.
"""
