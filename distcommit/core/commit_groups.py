"""Commit groups: datasets that are committed to one target together share a bucket, and so a commit log."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from distcommit.core.errors import ConfigurationError, error_text, plain_text
from distcommit.core.interfaces.sink import BY_DATASET, Sink

MAX_GROUP_BYTES = 1024


@dataclass(frozen=True, slots=True)
class CommitGroups:
    """The job's rule that assigns datasets to commit groups and buckets.

    The rule depends only on the sink, so that all processes compute the same buckets.

    Attributes:
        sink: the job's sink; None puts each dataset into a group of its own.
    """

    sink: Sink | None = None

    @property
    def are_named(self) -> bool:
        """Return whether the sink names groups, so that several datasets may share a target."""
        return self.sink is not None and self.sink.grouped_by != BY_DATASET

    def group_of(self, urn: str) -> str:
        """Return the commit group of a dataset: its URN, unless the sink names another group.

        Raises:
            ConfigurationError: if the sink returns no valid group, or returns different groups for the same dataset.
        """
        if self.sink is None or not self.are_named:
            return urn
        try:
            group, repeated = self.sink.commit_group(urn), self.sink.commit_group(urn)
        except Exception as error:
            text = error_text(error)
            raise _invalid_group(self.sink, urn, text) from error
        if not _is_group(group):
            raise _invalid_group(self.sink, urn, f"{type(group).__name__}: {plain_text(repr(group), 60)}")
        if repeated != group:
            raise _invalid_group(self.sink, urn, f"{group!r} on one call, {plain_text(repr(repeated), 60)} on the next")
        return group

    def bucket_of(self, urn: str, buckets: int) -> int:
        """Return the bucket that holds the dataset's state, 0 <= bucket < buckets.

        Raises:
            ConfigurationError: as `group_of`.
        """
        return bucket_of(self.group_of(urn), buckets)

    def planning_bucket(self, urn: str, buckets: int) -> int:
        """Return the bucket whose owner plans the dataset: the dataset's own bucket (`bucket_of`).

        If the dataset has no valid commit group, the bucket is computed from its URN, so that exactly one owner reports
        the problem.
        """
        try:
            return self.bucket_of(urn, buckets)
        except ConfigurationError:
            return bucket_of(urn, buckets)


def bucket_of(name: str, buckets: int) -> int:
    """Return the bucket of a commit group, 0 <= bucket < buckets; the same on every machine and in every version.

    An invalid name has a bucket too, whose owner reports the problem.
    """
    try:
        data = name.encode()
    except (UnicodeEncodeError, AttributeError):
        data = plain_text(name).encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") % buckets


def _is_group(group: object) -> bool:
    try:
        return type(group) is str and 0 < len(group.encode()) <= MAX_GROUP_BYTES
    except UnicodeEncodeError:
        return False


def _invalid_group(sink: Sink, urn: str, actual: str) -> ConfigurationError:
    return ConfigurationError(
        "the sink returned an invalid commit group for a dataset",
        id="COMMIT_GROUP_INVALID",
        dataset=urn,
        sink=sink.name,
        expected=f"text of 1 to {MAX_GROUP_BYTES} bytes of valid UTF-8, the same on every call",
        found=actual,
        todo="correct the sink's commit_group()",
    )
