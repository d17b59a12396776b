"""A simulated full disk for all writes of this process."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from distcommit.core.errors import SinkUnavailableError
from distcommit.core.interfaces.committer import Committed, RetryLater


@contextmanager
def full_disk() -> Iterator[None]:
    """Fail each write to a file with the kernel's error of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def assert_full_disk_harmless(target: Any, ids: Callable[[int], Any]) -> None:
    """Check that a full disk leaves no commit or attempt half visible, that the probe reports an outage, and that the
    same request succeeds later.

    Args:
        target: The tables, as provided by the tests of their sink.
        ids: Returns a batch of one row with the given id.
    """
    sink = target.sink()
    assert target.commit(sink, target.prepare(sink, "t", 1, ids(1))) == [Committed()]
    requests = [target.prepare(sink, urn, 2, ids(2)) for urn in ("t", "u")]
    target.committer(sink).probe()
    with full_disk():
        with pytest.raises((OSError, SinkUnavailableError), match="File too large"):
            target.committer(sink).probe()
        for outcome in target.commit(sink, *requests):
            assert isinstance(outcome, RetryLater), outcome
        with pytest.raises(OSError, match="File too large"):
            target.prepare(sink, "t", 3, ids(3))
    assert (target.rows("t"), target.rows("u")) == ([1], [])
    assert target.commit(sink, *requests) == [Committed()] * 2
    assert (target.rows("t"), target.rows("u")) == ([1, 2], [2])
    assert not list(target.folder.rglob("*-probe-*"))
