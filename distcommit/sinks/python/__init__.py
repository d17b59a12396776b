"""A custom sink.

Must not answer for the class: the section forwards each member of the interface. Start reading at `sink`.
"""

SETTINGS = "sink:PythonSink"
