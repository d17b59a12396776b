"""Kafka topics.

Must not send records and their ledger row in different transactions. Start reading at `sink`.
"""

SETTINGS = "sink:KafkaSink"
