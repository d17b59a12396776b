"""Records of the job log: decisions about whole runs, log heads, and moves to another generation of bucket logs.

The rules for changes are those of `log_records`.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class Decide(Struct, frozen=True, array_like=True, tag="Decide"):
    """The decision to publish the held sequences of a run. The committer of each bucket then executes the bucket's own
    sequences.

    Attributes:
        epoch: the run whose held sequences must be published.
    """

    epoch: int


class Head(Struct, frozen=True, array_like=True):
    """The end of a bucket's log at some time.

    Attributes:
        bucket: the bucket.
        number: the number of the newest segment.
        checksum: the checksum of that segment, which also covers the id of its writer.
        is_complete: False if the bucket lost segments after this head. Every run checks the bucket again.
    """

    bucket: int
    number: int
    checksum: str
    is_complete: bool = True


class CutPhase(IntEnum):
    """The moment of a run at which it writes a CUT."""

    BEGAN = 1
    """All commits of older runs are replayed."""
    ENDED = 2
    """The run has ended."""


class Cut(Struct, frozen=True, array_like=True, tag="Cut"):
    """The ends of all bucket logs, as a run read them after it had fenced the logs.

    Attributes:
        epoch: the run that read the ends and writes this record.
        phase: the moment of the run: after recovery, or at its end.
        heads: the end of each bucket log.
    """

    epoch: int
    phase: CutPhase
    heads: tuple[Head, ...]


class Heads(Struct, frozen=True, array_like=True, tag="Heads"):
    """New ends of bucket logs, after an operator action, or after a run has sealed commits of a killed run. Each end is
    above the last head of its bucket.

    Attributes:
        heads: the new ends, only of buckets whose log is longer than its last head.
        requested_by: the operator who requested the action, or the run.
    """

    heads: tuple[Head, ...]
    requested_by: str


class Rebucket(Struct, frozen=True, array_like=True, tag="Rebucket"):
    """The start of the move to generation `generation`. Until it has finished, no `Cut` and no `Heads` is valid.

    Attributes:
        epoch: the run.
        generation: the new generation.
        buckets: the new number of buckets.
        settings: the fixed settings that name datasets and assign buckets in the new generation.
    """

    epoch: int
    generation: int
    buckets: int
    settings: dict[str, str] = {}


class Generation(Struct, frozen=True, array_like=True, tag="Generation"):
    """The logs of the new generation are complete and count from here on.

    Attributes:
        epoch: the run that has moved the logs.
        generation: the number of the new generation, as in its `Rebucket`.
    """

    epoch: int
    generation: int
