"""A source of the user's own: a class that the executors can import."""

SETTINGS = "source:PythonSource"
