"""A source of the user's own: a class that the executors can import.

Must not answer for the class: what the interface has is handed on. Start reading at `source`.
"""

SETTINGS = "source:PythonSource"
