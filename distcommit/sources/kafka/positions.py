"""Where other readers of a job's topics stand: their positions by dataset, in the names that the job has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from confluent_kafka import KafkaException, TopicPartition

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import GroupPositions
from distcommit.core.watermark import Position
from distcommit.sources.kafka.client import ClientNotes, KafkaConnection, KafkaQueries, close_consumer, error_text
from distcommit.sources.kafka.names import KafkaDataset, PartitionName, TopicSelection

_CHUNK = 1000


def group_positions(
    connection: KafkaConnection, select: TopicSelection, kind: Literal["topic", "partition"], group: str
) -> GroupPositions:
    """What a consumer group has committed for these topics, as datasets of that kind. It is only asked about, never
    joined.

    A committed offset is that of the next record the group would read, as a watermark's position is.

    Raises:
        SourceError: if no broker answers, or one refuses.
    """
    datasets = [
        dataset
        for found in KafkaQueries(connection).topics()
        if found.topic in select
        for dataset in found.datasets(kind)
    ]
    committed = _committed(connection, group, [name for dataset in datasets for name in dataset.names()])
    positions = {dataset.urn: _of(dataset, committed) for dataset in datasets}
    missing = [
        f"{topic} partition {partition}: nothing committed"
        for dataset in datasets
        for topic, partition in dataset.names()
        if (topic, partition) not in committed
    ]
    return GroupPositions({urn: found for urn, found in positions.items() if found}, missing)


def _of(dataset: KafkaDataset, committed: Mapping[PartitionName, int]) -> dict[str, Position]:
    return {str(name[1]): committed[name] for name in dataset.names() if name in committed}


def _committed(connection: KafkaConnection, group: str, names: list[PartitionName]) -> dict[PartitionName, int]:
    consumer = connection.consumer(ClientNotes(connection), group)
    found: dict[PartitionName, int] = {}
    try:
        for begin in range(0, len(names), _CHUNK):
            asked = [TopicPartition(*name) for name in names[begin : begin + _CHUNK]]
            for answer in consumer.committed(asked, timeout=connection.request_timeout_s):
                if answer.error is not None:
                    raise KafkaException(answer.error)
                if answer.offset >= 0:
                    found[answer.topic, answer.partition] = answer.offset
    except KafkaException as error:
        raise SourceError(
            "the consumer group's offsets can't be read",
            group=group,
            found=connection.masked(error_text(error)),
            todo="check the group's name, and that source.client may read it",
        ) from None
    finally:
        close_consumer(consumer)
    return found
