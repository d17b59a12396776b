"""Positions that a person names, held against what a position in Kafka can be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from distcommit.core.watermark import Position
from distcommit.sources.kafka.names import TopicSelection


def position_problems(
    datasets: Mapping[str, Mapping[str, Position]],
    select: TopicSelection,
    partitions: Mapping[str, Collection[int]],
    *,
    by_partition: bool,
) -> Iterator[str]:
    """What is wrong with positions, one text each.

    Args:
        datasets: the positions by partition, by dataset.
        select: the job's topics.
        partitions: those of each topic that the brokers have shown; of others it is not known.
        by_partition: whether a dataset is a partition.
    """
    for urn, positions in datasets.items():
        topic, _, own = urn.rpartition("@") if by_partition else (urn, "", "")
        if topic not in select or (by_partition and not is_number(own)):
            yield f"{urn!r} is not a dataset of this job (see source.topics, topic_patterns and exclude)"
            continue
        there = partitions.get(topic)
        for partition, position in positions.items():
            if not is_number(partition):
                yield f"{urn!r}: {partition!r} is not a partition's number"
            elif by_partition and partition != own:
                yield f"{urn!r}: partition {partition} is not in this dataset"
            elif there is not None and int(partition) not in there:
                yield f"{urn!r}: the topic has no partition {partition}, it has {len(there)}"
            elif type(position) is not int or not 0 <= position < 2**63:
                yield f"{urn!r}: {position!r}, for partition {partition}, is not an offset"


def is_number(text: str) -> bool:
    """Whether a text is a partition's number, as it is written."""
    return text.isascii() and text.isdecimal() and str(int(text)) == text
