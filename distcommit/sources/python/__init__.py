"""Custom sources: the section `source` of type `python`.

Must not implement the source interface itself: `PythonSource` forwards each call to the custom class. Start reading at
`source`.
"""

SETTINGS = "source:PythonSource"
