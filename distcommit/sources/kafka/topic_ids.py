"""Topic ids: what tells a topic from another one that was made under its name later."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from distcommit.core.errors import DistcommitError
from distcommit.sources.kafka.client import KafkaConnection, KafkaQueries, error_text
from distcommit.sources.kafka.names import Unanswered

logger = logging.getLogger(__name__)

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


def ids_of(connection: KafkaConnection, topics: Mapping[str, str]) -> dict[str, str]:
    """Return the topic ids of datasets, by their topics; those that the brokers do not tell are left out."""
    try:
        queries = KafkaQueries(connection)
        there = {found.topic for found in queries.topics()}.intersection(topics.values())
        ids = topic_ids(connection, queries.admin, there) if queries.knows_topic_ids else {}
    except DistcommitError as error:
        logger.warning("topic ids are not known: %s", error)
        return {}
    named = {urn: ids.get(topic, "") for urn, topic in topics.items()}
    return {urn: topic_id for urn, topic_id in named.items() if isinstance(topic_id, str) and topic_id}


def partitions_of(connection: KafkaConnection) -> dict[str, tuple[int, ...]]:
    """Return the partitions of all topics; none if the brokers do not answer."""
    try:
        return {found.topic: found.partitions for found in KafkaQueries(connection).topics()}
    except DistcommitError as error:
        logger.warning("whether partitions are there is not known: %s", error)
        return {}
