"""Committed offsets of a consumer group, as positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from confluent_kafka import KafkaException, TopicPartition

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import GroupPositions
from distcommit.core.watermark import Position
from distcommit.sources.kafka.client import ClientLog, KafkaConnection, KafkaQueries, close_consumer, error_text
from distcommit.sources.kafka.topics import KafkaDataset, PartitionName, TopicSelection

_CHUNK = 1000


def group_positions(
    connection: KafkaConnection, select: TopicSelection, kind: Literal["topic", "partition"], group: str
) -> GroupPositions:
    """Return a group's committed offsets as positions, without joining it.

    Partitions without a committed offset are listed in the result.

    Raises:
        SourceError: if no broker responds, or one rejects the request.
    """
    datasets = [
        dataset
        for topic in KafkaQueries(connection).topics()
        if topic.topic in select
        for dataset in topic.datasets(kind)
    ]
    committed = _committed(connection, group, [name for dataset in datasets for name in dataset.names()])
    positions = {dataset.urn: _of(dataset, committed) for dataset in datasets}
    missing = [
        f"{topic} partition {partition}: nothing committed"
        for dataset in datasets
        for topic, partition in dataset.names()
        if (topic, partition) not in committed
    ]
    return GroupPositions({urn: of_dataset for urn, of_dataset in positions.items() if of_dataset}, missing)


def _of(dataset: KafkaDataset, committed: Mapping[PartitionName, int]) -> dict[str, Position]:
    return {str(name[1]): committed[name] for name in dataset.names() if name in committed}


def _committed(connection: KafkaConnection, group: str, names: list[PartitionName]) -> dict[PartitionName, int]:
    consumer = connection.consumer(ClientLog(connection), group)
    committed: dict[PartitionName, int] = {}
    try:
        for begin in range(0, len(names), _CHUNK):
            partitions = [TopicPartition(*name) for name in names[begin : begin + _CHUNK]]
            for partition in consumer.committed(partitions, timeout=connection.request_timeout_s):
                if partition.error is not None:
                    raise KafkaException(partition.error)
                if partition.offset >= 0:
                    committed[partition.topic, partition.partition] = partition.offset
    except KafkaException as error:
        raise SourceError(
            "the consumer group's offsets can't be read",
            group=group,
            found=connection.masked(error_text(error)),
            todo="check the group's name, and the rights of the user in source.client",
        ) from None
    finally:
        close_consumer(consumer)
    return committed
