"""Previews of a job: its records are printed, and nothing is stored.

Must not be used by a service, or be combined with a sink that commits. Start reading at `sink`.
"""

SETTINGS = "sink:ConsoleSink"
