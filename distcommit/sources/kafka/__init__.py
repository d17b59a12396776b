"""Kafka topics as datasets.

Must not commit offsets nor join a group. Start reading at `source`, then `plan` and `extractor`. Only `client` talks to
brokers. `names` and `position_problems` work without a Kafka client.
"""

SETTINGS = "source:KafkaSource"
