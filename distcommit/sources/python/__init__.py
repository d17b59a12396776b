"""Custom source: a class that the driver and the executors import.

Must not decide for the class: every call of the interface is handed on. Start reading at `source`.
"""

SETTINGS = "source:PythonSource"
