"""Custom sinks, named by Python class.

Must not decide in place of the class. Start reading at `sink`.
"""

SETTINGS = "sink:PythonSink"
