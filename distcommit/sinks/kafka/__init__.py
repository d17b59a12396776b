"""Kafka topics, to which records and their ledger rows are committed in one transaction.

Must not send records and their ledger row in different transactions. Start reading at `sink`.
"""

SETTINGS = "sink:KafkaSink"
