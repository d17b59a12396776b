"""Topic ids: what tells a topic from another one that was made under its name later."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from distcommit.sources.kafka.client import KafkaConnection, error_text
from distcommit.sources.kafka.names import Unanswered

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zero bytes: the cluster is older than topic ids
_CHUNK = 500


def topic_ids(connection: KafkaConnection, admin: AdminClient, topics: Collection[str]) -> dict[str, str | Unanswered]:
    """The id of each topic, "" where the cluster has none (Kafka before 2.8)."""
    listed = sorted(topics)
    found: dict[str, str | Unanswered] = {}
    for start in range(0, len(listed), _CHUNK):
        asked = TopicCollection(listed[start : start + _CHUNK])
        for topic, future in admin.describe_topics(asked, request_timeout=connection.request_timeout_s).items():
            try:
                topic_id = str(future.result().topic_id)
            except KafkaException as error:
                found[topic] = Unanswered(connection.masked(error_text(error)))
            else:
                found[topic] = "" if topic_id == _NONE else topic_id
    return found
