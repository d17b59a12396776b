"""Processes that are killed before a line of some modules, without any cleanup."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, NoReturn, cast

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import CommitRequest
from distcommit.sinks import base, databases, table_formats
from distcommit.sinks.base.committer_sink import CommitterSink

SHARED = [*base.__path__, *databases.__path__, *table_formats.__path__]
"""The folders of code that sinks share."""
_DIED, _FAILED = 17, 18
_LONGEST_S = 120
_NEVER = 1 << 62


class ForkServer:
    """A fork server: a process that has used no client, so that its children start without threads and connections.

    A child of a process that has used clients could wait forever for a lock that one of their threads held during the
    fork.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def killed_at(self, line: int, locations: Collection[str], act: Callable[..., None], *arguments: Any) -> bool:
        """Call `act` in a process that is killed before the `line`th line that it executes in `locations`.

        Args:
            line: the number of the line, from 1.
            locations: files, and folders whose direct files count.
            act: an importable function, such as `commit_all`.

        Returns:
            True if the process was killed, False if it ended first.

        Raises:
            AssertionError: if the process failed by itself, or did not end within two minutes.
        """
        code, _ = self._result_of(line, locations, act, *arguments)
        return code == _DIED

    def failed_at(self, line: int, locations: Collection[str], act: Callable[..., None], *arguments: Any) -> bool:
        """Call `act` in a process in which the `line`th line that it executes in `locations` raises an OSError, like a
        broken connection. The arguments are those of `killed_at`; `act` may catch the error.

        Returns:
            True if the line was reached, False if the process ended first.

        Raises:
            AssertionError: if the process failed before that line, or did not end within two minutes.
        """
        code, lines = self._result_of(-line, locations, act, *arguments)
        return code == _DIED or lines >= line

    def lines_of(self, locations: Collection[str], act: Callable[..., None], *arguments: Any) -> int:
        """Call `act` in a process, and return the number of lines that it executes in `locations`. Raises
        AssertionError if the process fails, or does not end within two minutes.
        """
        _, lines = self._result_of(_NEVER, locations, act, *arguments)
        return lines

    def _result_of(self, line: int, *requested: Any) -> tuple[int, int]:
        self._pipe.send((line, *requested))
        assert self._pipe.poll(_LONGEST_S), f"a process that must end before line {line} took over {_LONGEST_S} s"
        code, lines = cast("tuple[int, int]", self._pipe.recv())
        assert code in (0, _DIED), f"the process failed by itself with exit code {code}; see its standard error"
        return code, lines


@contextmanager
def fork_server(preloaded: Sequence[str]) -> Iterator[ForkServer]:
    """Start a fork server that imports the modules once. At the end, end it and its children."""
    clean = multiprocessing.get_context("spawn")
    pipe, its_end = clean.Pipe()
    process = clean.Process(target=_serve, args=(its_end, tuple(preloaded)))
    process.start()
    its_end.close()
    try:
        yield ForkServer(pipe)
    finally:
        pipe.close()
        process.terminate()
        process.join()


def _serve(pipe: Connection, preloaded: Sequence[str]) -> None:
    for name in preloaded:
        importlib.import_module(name)
    while True:
        try:
            line, locations, act, *arguments = pipe.recv()
        except EOFError:
            return
        read_end, write_end = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries, which share no lock
            child = os.fork()
        if child == 0:
            _act_until(line, frozenset(locations), act, arguments, write_end)
        os.close(write_end)
        with open(read_end) as lines:
            come_to = int(lines.read() or 0)
        pipe.send((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), come_to))


def commit_all(sink: CommitterSink, context: StepContext, requests: Sequence[CommitRequest]) -> None:
    committer = sink.open_committer(context.for_committers)
    committer.commit(requests)
    committer.close()


def _act_until(
    line: int, locations: Collection[str], act: Callable[..., None], arguments: Sequence[Any], write_end: int
) -> NoReturn:
    """Call `act`, and end this process. The process ends earlier if any thread reaches that line; if `line` is
    negative, the line raises an OSError instead. If `act` returns, write the number of executed lines to `write_end`.
    """
    remaining, fails = [abs(line)], line < 0

    @cache
    def is_there(file: str) -> bool:
        return file in locations or os.path.dirname(file) in locations

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if not is_there(frame.f_code.co_filename):
            return None
        if event == "line":
            remaining[0] -= 1
            if not remaining[0] and not fails:
                os._exit(_DIED)
            if not remaining[0]:
                raise OSError(errno.EIO, "a connection that breaks")
        return trace

    try:
        threading.settrace(trace)
        sys.settrace(trace)
        act(*arguments)
        sys.settrace(None)
        os.write(write_end, str(abs(line) - remaining[0]).encode())
    except BaseException:  # noqa: BLE001 - this function must not return
        if fails and remaining[0] <= 0:
            os._exit(_DIED)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(_FAILED)
    os._exit(0)
