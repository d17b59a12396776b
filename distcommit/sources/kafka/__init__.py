"""Source of Kafka topics. A dataset is a topic or a partition.

Must not commit offsets nor join a consumer group. Only `client` and `read_topic_ids` talk to brokers. `topics` and
`check_set_positions` work without a Kafka client. Start reading at `source`, then `plan_topics` (all topics),
`plan_dataset` (one topic) and `extractor`.
"""

SETTINGS = "source:KafkaSource"
