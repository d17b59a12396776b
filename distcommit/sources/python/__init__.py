"""Custom sources, by Python class.

Must not implement the interface itself: each call is forwarded. Start reading at `source`.
"""

SETTINGS = "source:PythonSource"
