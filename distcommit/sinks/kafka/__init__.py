"""Kafka topics: records and the ledger's row in one transaction. Only `client`, `committer` and `producers` know a
client.

Must not send rows and their proof in two transactions. Start reading at `sink`.
"""

SETTINGS = "sink:KafkaSink"
