"""How a source's batches say where each record came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _itself(urn: str) -> str:
    return urn


@dataclass(frozen=True, slots=True)
class Provenance:
    """The columns of a source's batches that say where each record came from: partition, and integer offset in it.

    An audit also has to know which datasets count in the same thing, whose positions only one of them may publish.

    Attributes:
        partition_column: the column with the partition.
        offset_column: the column with the offset.
        thing_of: names what a dataset's offsets count in (a Kafka topic), by its URN alone, however the job that wrote
            it was configured; by default each dataset counts in a thing of its own.
        unique_incarnations: whether an incarnation is the name of one thing in the world (a Kafka topic id), so that
            datasets of the same one count in the same thing, whatever their URNs say.
        counts_reading: whether an offset numbers what was read (a row of a list, of files), and not a place in the
            source. Once a watermark is forgotten, other records get the same offsets, and newer ones get lower ones.
    """

    partition_column: str
    offset_column: str
    thing_of: Callable[[str], str] = _itself
    unique_incarnations: bool = False
    counts_reading: bool = False
