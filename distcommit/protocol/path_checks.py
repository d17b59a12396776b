"""Checks that keep commit steps below their roots."""

from __future__ import annotations

from collections.abc import Sequence

from distcommit.core.errors import ConfigurationError

_NO_NAMES = frozenset({"", ".", ".."})


def check_relative(path: str) -> str:
    """Return a path that stays below its root.

    Raises:
        ConfigurationError: if the path is absolute or empty, or has `.`, `..`, empty components or a NUL.
    """
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise ConfigurationError(
            "a commit step's path leads outside its root",
            id="PATH_OUTSIDE_ROOT",
            path=repr(path),
            expected="a relative path without empty, '.' or '..' components",
            todo="do not run the job: another program has changed its store or job file. Restore both from a backup",
        )
    return path


def check_names(names: Sequence[str]) -> None:
    """Check file names without `/` by the rules of `check_relative`, at a fraction of the cost. Raise
    ConfigurationError."""
    if not _NO_NAMES.isdisjoint(names) or "\0" in "".join(names):
        for name in names:
            check_relative(name)


def are_nested(one: str, other: str) -> bool:
    """Return whether two paths are equal or one is inside the other."""
    one, other = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return one.startswith(other) or other.startswith(one)
