"""Buckets of commit groups are the same in every version."""

from __future__ import annotations

from distcommit.core.commit_groups import bucket_of


def test_buckets_never_change() -> None:
    """Golden values: later versions and other machines read the same store."""
    assert [bucket_of(name, 64) for name in ("flights.ATL", "a", "ü")] == [49, 47, 55]
