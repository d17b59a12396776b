"""A sink of the user's own: a class that the executors can import.

Must not answer for the class: all that the interface has is handed on. Start reading at `sink`.
"""

SETTINGS = "sink:PythonSink"
