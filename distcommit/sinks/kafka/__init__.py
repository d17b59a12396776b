"""Kafka topics: records and their ledger rows are committed in one transaction.

Only `client`, `committer` and `producers` import a client library. Must not send records and their ledger row in
different transactions. Start reading at `sink`.
"""

SETTINGS = "sink:KafkaSink"
