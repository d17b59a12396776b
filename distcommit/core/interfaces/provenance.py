"""Columns of a source's batches that name each record's origin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _itself(urn: str) -> str:
    return urn


@dataclass(frozen=True, slots=True)
class Provenance:
    """The columns that name each record's source partition and its integer offset in the partition.

    An audit also needs to know which datasets share an offset space, because only one of them may publish a position.

    Attributes:
        partition_column: the column with the partition.
        offset_column: the column with the offset.
        offset_space_of: returns a dataset's offset space (a Kafka topic) from its URN alone, independent of the
            job's settings. By default each dataset has an offset space of its own.
        unique_incarnations: whether an incarnation is globally unique (a Kafka topic id), so that datasets with the
            same incarnation share an offset space, whatever their URNs.
        counts_reading: whether an offset numbers the records in reading order (rows of a list, of files) instead of
            naming a point in the source. Once a watermark is set to null, other records get the same offsets.
    """

    partition_column: str
    offset_column: str
    offset_space_of: Callable[[str], str] = _itself
    unique_incarnations: bool = False
    counts_reading: bool = False
