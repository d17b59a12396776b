"""Previews of a job, which print records and store nothing.

Must not be used by a service, or with a sink that commits. Start reading at `sink`.
"""

SETTINGS = "sink:ConsoleSink"
