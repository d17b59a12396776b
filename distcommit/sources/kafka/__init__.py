"""Kafka topics as datasets.

Must not commit offsets nor join a group. Start reading at `source`, then `plan` and `extractor`; `client` is all that
talks to brokers. `names`, `by_hand` and `positions` need no Kafka client until they are asked for something that only
brokers know.
"""

SETTINGS = "source:KafkaSource"
