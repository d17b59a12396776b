"""Source of Kafka topics, where a dataset is a topic or a partition.

Must not commit offsets nor join a consumer group. Start reading at `source`, then `plan_topics`, `plan_dataset` and
`extractor`.
"""

SETTINGS = "source:KafkaSource"
