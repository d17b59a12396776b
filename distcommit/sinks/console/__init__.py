"""Preview of a job: its records on the console, and nothing durable.

Must not be served, or be combined with a sink that commits. Start reading at `sink`.
"""

SETTINGS = "sink:ConsoleSink"
