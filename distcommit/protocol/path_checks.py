"""The check that keeps steps below the roots that their paths are relative to."""

from __future__ import annotations

from collections.abc import Sequence

from distcommit.core.errors import ConfigurationError

_NO_NAMES = frozenset({"", ".", ".."})


def check_relative(path: str) -> str:
    """Returns `path` if it stays below the root that it is relative to, judged by its text.

    Raises:
        ConfigurationError: if it is absolute, empty, has `.`, `..` or empty components, or a NUL.
    """
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise ConfigurationError(
            "a commit step names a path outside its root",
            path=repr(path),
            expected="a relative path without empty, '.' or '..' components",
            todo="a store or a job that says this was tampered with or is misconfigured: do not run it",
        )
    return path


def check_names(names: Sequence[str]) -> None:
    """`check_relative` for many last components, which have no `/`, at a fraction of its cost where all are well.

    Raises:
        ConfigurationError: for the first that is not.
    """
    if not _NO_NAMES.isdisjoint(names) or "\0" in "".join(names):
        for name in names:
            check_relative(name)


def are_nested(one: str, other: str) -> bool:
    """Return whether two normal paths or URLs are the same folder, or one is inside the other."""
    one, other = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return one.startswith(other) or other.startswith(one)
