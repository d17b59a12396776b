"""Commit groups: datasets that are committed to one target together are in one bucket, and so in one commit log."""

from __future__ import annotations

from dataclasses import dataclass

from distcommit.core.errors import ConfigurationError, DistcommitError, error_text, plain_text
from distcommit.core.interfaces.sink import BY_DATASET, Sink
from distcommit.core.urn import bucket_of

MAX_GROUP_BYTES = 1024


@dataclass(frozen=True, slots=True)
class CommitGroups:
    """The job's rule: what its sink says, or each dataset by itself. Who has the job's sink finds the same buckets.

    Attributes:
        sink: the job's; None where there is none, and datasets are by themselves.
    """

    sink: Sink | None = None

    @property
    def are_named(self) -> bool:
        """Whether the sink names groups, so that a bucket's datasets may go to one target together."""
        return self.sink is not None and self.sink.grouped_by != BY_DATASET

    def group_of(self, urn: str) -> str:
        """The commit group of a dataset: its URN, unless the sink names another.

        Raises:
            ConfigurationError: if the sink names none, or one that can't be a group.
        """
        if self.sink is None or not self.are_named:
            return urn
        try:
            group, again = self.sink.commit_group(urn), self.sink.commit_group(urn)
        except Exception as error:
            text = str(error) if isinstance(error, DistcommitError) else error_text(error)
            raise _no_group(self.sink, urn, text) from error
        if not _is_group(group):
            raise _no_group(self.sink, urn, f"{type(group).__name__}: {plain_text(repr(group), 60)}")
        if again != group:
            raise _no_group(self.sink, urn, f"{group!r}, and then {plain_text(repr(again), 60)}: not always the same")
        return group

    def bucket_of(self, urn: str, buckets: int) -> int:
        """The bucket that holds the dataset's state, 0 <= bucket < buckets. Raises as `group_of`."""
        return bucket_of(self.group_of(urn), buckets)

    def planning_bucket(self, urn: str, buckets: int) -> int:
        """The bucket whose owner plans the dataset: the one that holds its state. A dataset without a group has one
        too, in which it is told that it has none."""
        try:
            return self.bucket_of(urn, buckets)
        except ConfigurationError:
            return bucket_of(urn, buckets)


def _is_group(group: object) -> bool:
    try:
        return type(group) is str and 0 < len(group.encode()) <= MAX_GROUP_BYTES
    except UnicodeEncodeError:
        return False


def _no_group(sink: Sink, urn: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        "the sink names no commit group for this dataset",
        dataset=urn,
        sink=sink.name,
        expected=f"text of 1 to {MAX_GROUP_BYTES} bytes of valid UTF-8, the same whenever it is asked",
        found=found,
        todo="correct the sink's commit_group()",
    )
