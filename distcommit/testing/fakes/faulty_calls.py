"""Faults below the production code: failing operations, lost results, slow calls, damaged bytes.

They replace the kernel: `LocalFileSystem(FaultyCalls(RealPosixCalls(), fault))`, also on a simulated machine.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distcommit.fs.local_disk.posix_calls import PosixCalls

READS = frozenset({"read_file", "lstat", "scandir", "realpath", "fstat"})
"""Calls that change nothing."""

SYNCS = frozenset({"fsync", "fsync_folder", "syncfs"})
"""Calls that make earlier changes durable."""

_UNTOUCHED = frozenset({"close", "fstat", "realpath"})

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EMFILE, errno.EDQUOT, errno.EROFS)
"""Error codes: no space, disk error, lost permission, too many open files, quota, read-only file system."""


class Crashed(BaseException):
    """The simulated death of the process. It is not an Exception, so that no code handles it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call on a file system.

    Attributes:
        kind: the name of the call.
        path: the path that the call concerns.
    """

    kind: str
    path: str

    @property
    def site(self) -> str:
        """Return the kind of call, and its path without ids. Simulations count distinct sites as their coverage."""
        return f"{self.kind} {_without_ids(self.path)}"


@dataclass(slots=True)
class Fault:
    """A fault and the operations that it affects.

    Args:
        code: the errno.
        first: the number of the first affected operation, from 0.
        times: the number of affected operations; a large number is a lasting outage.
        takes_effect: whether the operation is executed although it returns an error.
        besides: called with the name and the first argument of each failing call.
        meanwhile: if set, nothing fails. Called during the operation, to act elsewhere at that moment.
        damage: if set, nothing fails. Replaces the bytes of a read, given its path and bytes.
        concerns: returns whether a call is counted and may fail, given its name and arguments; by default all.
            The calls `close`, `fstat` and `realpath` never are.

    Attributes:
        sites: the `Operation.site` of each counted call.
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
    def counted_calls(self) -> int:
        return len(self.sites)

    def strikes(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Count a call and return whether it fails."""
        if name == "open_new":
            self._opened = arguments[0]
        if name in _UNTOUCHED or not self.concerns(name, arguments):
            return False
        number = self.counted_calls
        paths = [argument for argument in arguments if isinstance(argument, str)]
        self.sites.append(Operation(name, paths[-1] if paths else self._opened).site)
        return self.first <= number < self.first + self.times


class FaultyCalls:
    """A `PosixCalls` that forwards each call to another one, unless the fault applies."""

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
