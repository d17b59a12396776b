"""Validation of positions that an operator sets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from distcommit.core.watermark import Position
from distcommit.sources.kafka.topics import TopicSelection


def position_problems(
    datasets: Mapping[str, Mapping[str, Position]],
    select: TopicSelection,
    partitions: Mapping[str, Collection[int]],
    *,
    by_partition: bool,
) -> Iterator[str]:
    """Yield one line for each position that is not an offset of an existing partition of the job's datasets.

    Args:
        partitions: existing partitions by topic, as the brokers reported them. Partitions of other topics are accepted.
        by_partition: whether each partition is a dataset.
    """
    for urn, positions in datasets.items():
        topic, _, own = urn.rpartition("@") if by_partition else (urn, "", "")
        if topic not in select or (by_partition and not is_number(own)):
            yield f"{urn!r} is not a dataset of this job (see source.topics, topic_patterns and exclude)"
            continue
        existing = partitions.get(topic)
        for partition, position in positions.items():
            if not is_number(partition):
                yield f"{urn!r}: {partition!r} is not a partition's number"
            elif by_partition and partition != own:
                yield f"{urn!r}: partition {partition} is not in this dataset"
            elif existing is not None and int(partition) not in existing:
                yield f"{urn!r}: the topic has no partition {partition}; it has {len(existing)} partitions"
            elif type(position) is not int or not 0 <= position < 2**63:
                yield f"{urn!r}: position {position!r} of partition {partition} is not an offset"


def is_number(text: str) -> bool:
    """Return whether a text is a number without leading zeros."""
    return text.isascii() and text.isdecimal() and str(int(text)) == text
