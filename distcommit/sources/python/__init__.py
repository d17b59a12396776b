"""A custom source.

Must not answer for the class: the section forwards each member of the interface. Start reading at `settings`.
"""

SETTINGS = "settings:PythonSource"
