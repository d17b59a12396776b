"""A custom sink: a class that driver and executors can import.

Must not decide for the class: every method of the interface is delegated. Start reading at `sink`.
"""

SETTINGS = "sink:PythonSink"
