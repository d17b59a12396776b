"""For trying out: a job's records on the console, and nothing that stays."""

SETTINGS = "sink:ConsoleSink"
