"""Source of Kafka topics, of which each or each partition is a dataset.

Must not commit offsets nor join a consumer group. Start reading at `source`, then `plan_topics`, `plan_dataset` and
`extractor`.
"""

SETTINGS = "source:KafkaSource"
