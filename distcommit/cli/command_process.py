"""The process of a command: its signals, and output streams whose reader may end."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import DistcommitError

INTERRUPTED = 130
"""Exit code of a command that a signal ended."""
_NO_READER = frozenset({errno.EPIPE, errno.EIO})
"""Errors of a pipe whose reader has ended, and of a closed terminal."""


class _OutputStream:
    """A text stream that discards all output once its reader, such as `head` or a terminal, has ended.

    Any other failure, such as a full disk, is raised once as a storage error, but never for stderr; later output is
    discarded. Other attributes are those of the wrapped stream.
    """

    def __init__(self, stream: IO[str], name: str) -> None:
        self._stream, self._name = stream, name
        self.has_reader = True

    def write(self, text: str) -> int:
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            self.has_reader = False
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())  # also for what the stream has buffered, and for child processes
            os.close(null)
            if error.errno not in _NO_READER and self._name != "stderr":
                raise storage_error(error, "the output can't be written", path=self._name) from error


def output_stream(stream: IO[str], name: str) -> IO[str]:
    """Wrap a text stream so that output is discarded once its reader has ended. `name`: stdout or stderr."""
    return cast(IO[str], _OutputStream(stream, name))


def has_reader(stream: IO[str]) -> bool:
    """Return False once the reader of an `output_stream` has ended, or a write to it has failed."""
    return bool(getattr(stream, "has_reader", True))


@contextlib.contextmanager
def command_process() -> Iterator[None]:
    """Run the command line as the whole process, which always ends with SystemExit.

    Standard streams that the caller has closed are replaced by the null device, so that no file of the job gets their
    descriptors.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = output_stream(sys.stdout or open(1, "w", closefd=False), "stdout")  # noqa: SIM115
    sys.stderr = output_stream(sys.stderr or open(2, "w", closefd=False), "stderr")  # noqa: SIM115
    code: int | str | None = 0
    try:
        with interrupted_by_signals():
            try:
                yield
            except SystemExit as end:
                code = end.code
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except DistcommitError as error:  # of help: commands report their own
        sys.stderr.write(f"error: {error}\n")
        code = error.exit_code
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the process without a traceback
    sys.exit(code)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C until the block ends, so that Spark cancels its jobs.

    This works even if SIGINT is ignored, as it is in background commands of a script. An ignored SIGHUP (`nohup`) stays
    ignored. Outside of the main thread, signals are not changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    ends = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
