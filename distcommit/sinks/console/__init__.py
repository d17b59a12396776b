"""For trying out: a job's records on the console, and nothing that stays.

Must not be served, nor stand beside a sink that commits. Start reading at `sink`.
"""

SETTINGS = "sink:ConsoleSink"
