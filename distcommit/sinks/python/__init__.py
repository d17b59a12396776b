"""Sinks of users: a section of the job file that names a Python class.

Must not decide in place of the class: the section forwards each member of the interface. Start reading at `sink`.
"""

SETTINGS = "sink:PythonSink"
