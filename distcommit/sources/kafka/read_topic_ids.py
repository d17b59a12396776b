"""Topic ids and partition numbers, by which a recreated topic is detected."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from distcommit.core.errors import DistcommitError
from distcommit.sources.kafka.client import KafkaConnection, KafkaQueries, error_text
from distcommit.sources.kafka.topics import UnknownTopicId

logger = logging.getLogger(__name__)

_NONE = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zero bytes, from a cluster without topic ids
_CHUNK = 500


def topic_ids(
    connection: KafkaConnection, admin: AdminClient, topics: Collection[str]
) -> dict[str, str | UnknownTopicId]:
    """Return each topic's id, or why it is unknown; empty if there is none (Kafka before 2.8)."""
    listed = sorted(topics)
    ids: dict[str, str | UnknownTopicId] = {}
    for start in range(0, len(listed), _CHUNK):
        chunk = TopicCollection(listed[start : start + _CHUNK])
        for topic, future in admin.describe_topics(chunk, request_timeout=connection.request_timeout_s).items():
            try:
                topic_id = str(future.result().topic_id)
            except KafkaException as error:
                ids[topic] = UnknownTopicId(connection.masked(error_text(error)))
            else:
                ids[topic] = "" if topic_id == _NONE else topic_id
    return ids


def ids_of(connection: KafkaConnection, topics: Mapping[str, str]) -> dict[str, str]:
    """Return the known topic ids of datasets; none if no broker responds.

    Args:
        topics: the topic by dataset.
    """
    try:
        queries = KafkaQueries(connection)
        existing = {topic.topic for topic in queries.topics()}.intersection(topics.values())
        ids = topic_ids(connection, queries.admin, existing) if queries.knows_topic_ids else {}
    except DistcommitError as error:
        logger.warning("topic ids could not be read: %s", error)
        return {}
    by_urn = {urn: ids.get(topic, "") for urn, topic in topics.items()}
    return {urn: topic_id for urn, topic_id in by_urn.items() if isinstance(topic_id, str) and topic_id}


def partitions_of(connection: KafkaConnection) -> dict[str, tuple[int, ...]]:
    """Return all topics' partition numbers; empty if no broker responds."""
    try:
        return {topic.topic: topic.partitions for topic in KafkaQueries(connection).topics()}
    except DistcommitError as error:
        logger.warning("partitions could not be checked: %s", error)
        return {}
