"""Kafka topics: records and the ledger's row in one transaction. Only `client` and `committer` know a client."""

SETTINGS = "sink:KafkaSink"
