"""Delta tables, which get one version for each commit call.

Must not commit on another version than the one whose ledger was read, nor delete a data file that a version has. Start
reading at `sink`.
"""

SETTINGS = "sink:DeltaSink"
