"""Processes that end before a line of a module that they come to, with nothing cleaned up."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

from distcommit.model.committer import CommitRequest
from distcommit.model.steps import StepContext
from distcommit.sinks.committer_sink import CommitterSink

_DIED, _FAILED = 17, 18


def killed_at(line: int, module: str, act: Callable[[], object]) -> bool:
    """Does it in a child process that ends, with nothing cleaned up, before the `line`th line of that module it comes
    to. Returns whether it ended so; False if it came to its end.

    Raises:
        AssertionError: if it failed by itself.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: the child uses none of them
        child = os.fork()
    if child == 0:
        _until(line, module, act)
    return died(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def died(code: int | None) -> bool:
    """Whether a child with that exit code ended before its line. Raises AssertionError if it failed by itself."""
    assert code in (0, _DIED), f"the commit failed by itself, exit code {code}"
    return code == _DIED


def commit_until(
    line: int, module: str, sink: CommitterSink, context: StepContext, requests: Sequence[CommitRequest]
) -> None:
    """Commits in this process, which ends with it, or before that line."""

    def commit() -> None:
        committer = sink.open_committer(context.for_committers)
        committer.commit(requests)
        committer.close()

    _until(line, module, commit)


def _until(line: int, module: str, act: Callable[[], object]) -> NoReturn:
    """Does it in this process, which ends with it, or before that line."""
    left = [line]

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != module:
            return None
        if event == "line":
            left[0] -= 1
            if not left[0]:
                os._exit(_DIED)
        return trace

    try:
        sys.settrace(trace)
        act()
    except BaseException:  # noqa: BLE001 - nothing may come back from here
        os._exit(_FAILED)
    os._exit(0)
