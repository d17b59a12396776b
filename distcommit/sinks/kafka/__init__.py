"""Kafka topics, to which records and their ledger rows are committed in one transaction.

Must not send records and their ledger row in different transactions. Only `client`, `committer` and
`catchable_producer` import a client library. Start reading at `sink`.
"""

SETTINGS = "sink:KafkaSink"
