"""Faults of the real world, below the code that runs in production: errors at any operation, lost answers, slow calls,
damaged bytes.

Put one of these in place of the kernel: `LocalFileSystem(FaultyCalls(RealPosixCalls(), fault))`, or under a simulated
machine.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distcommit.fs.posix_calls.posix import PosixCalls

READS = frozenset({"read_file", "lstat", "scandir", "realpath", "fstat"})
"""Calls that change nothing."""

SYNCS = frozenset({"fsync", "fsync_folder", "syncfs"})
"""Calls that make durable what others have done."""

_UNTOUCHED = frozenset({"close", "fstat", "realpath"})

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EMFILE, errno.EDQUOT, errno.EROFS)
"""No space, a bad disk, permission lost, too many open files, quota, a file system gone read-only."""


class Crashed(BaseException):
    """The process died here. Not an Exception: nothing may handle it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call on a file system: its kind and its path. `site` has ids taken out."""

    kind: str
    path: str

    @property
    def site(self) -> str:
        """The kind of operation and the kind of place, for coverage."""
        return f"{self.kind} {_without_ids(self.path)}"


@dataclass(slots=True)
class Fault:
    """What goes wrong, at which operations.

    Args:
        code: the errno.
        first: number of the first operation that fails, counted from 0.
        times: how many operations from there on fail; a large number is an outage that lasts.
        takes_effect: the operation is done all the same, and only its answer is an error.
        besides: what happens, by name and first argument of the call, as it fails.
        meanwhile: nothing fails; this is what happens elsewhere while the operation takes its time.
        damage: nothing fails; the read gives what this makes of the path and the bytes.
        concerns: which calls are counted and fail, by name and arguments; all but a few by default.

    Attributes:
        sites: the kind and the kind of place of each call that was counted.
    """

    code: int
    first: int
    times: int = 1
    takes_effect: bool = False
    besides: Callable[[str, object], None] | None = None
    meanwhile: Callable[[], object] | None = None
    damage: Callable[[str, bytes], bytes] | None = None
    concerns: Callable[[str, tuple[Any, ...]], bool] = lambda name, arguments: True
    sites: list[str] = field(default_factory=list, init=False)
    _opened: str = field(default="", init=False)

    @property
    def seen(self) -> int:
        """How many calls were counted."""
        return len(self.sites)

    def strikes(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Counts a call; whether it fails."""
        if name == "open_new":
            self._opened = arguments[0]
        if name in _UNTOUCHED or not self.concerns(name, arguments):
            return False
        number = self.seen
        paths = [argument for argument in arguments if isinstance(argument, str)]
        self.sites.append(Operation(name, paths[-1] if paths else self._opened).site)
        return self.first <= number < self.first + self.times


class FaultyCalls:
    """System calls that pass on to others, except where the fault strikes. Serves as `PosixCalls`."""

    def __init__(self, calls: PosixCalls, fault: Fault) -> None:
        self._calls, self._fault = calls, fault

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._calls, name)

        def passed_on(*arguments: Any) -> Any:
            if not self._fault.strikes(name, arguments):
                return call(*arguments)
            if self._fault.damage is not None:
                return self._fault.damage(arguments[0], call(*arguments))
            if self._fault.meanwhile is not None:
                self._fault.meanwhile()
                return call(*arguments)
            if self._fault.takes_effect:
                call(*arguments)
            if self._fault.besides is not None:
                self._fault.besides(name, arguments[0])
            path = next((argument for argument in arguments if isinstance(argument, str)), None)
            raise OSError(self._fault.code, os.strerror(self._fault.code), path)

        return passed_on


_IDS = re.compile(r"[0-9a-f]{32}|\d{8}T\d{6}-[0-9a-f]{12}|[0-9a-f]{16}(?=\.parquet)")
_DIGITS = re.compile(r"\d+")


@functools.lru_cache(100_000)
def _without_ids(path: str) -> str:
    return _DIGITS.sub("0", _IDS.sub("#", path))
