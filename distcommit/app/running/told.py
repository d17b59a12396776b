"""What a run tells of its job and of what it runs on, for its record: never a secret."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
from collections.abc import Mapping
from typing import Any

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.stores.run_records import RunFacts

_NAMED = ("distcommit", "pyspark", "pyarrow", "confluent-kafka")
_HIDDEN = "***"
_SECRET = re.compile(r"pass|secret|token|credential|jaas|auth|private|signature|(^|[._-])(api|access)?[._-]?key$", re.I)
_HANDED_ON = frozenset({"alerts", "client", "headers", "options", "params", "properties", "conf", "env"})
"""Sections of which all values are handed on to others: any of them may be secret."""
_REFERENCE = re.compile(r"\$\{(\w+|file:[^}]*)\}")
"""Says where a secret is, and not what it is."""
_DEFAULT = re.compile(r"(\$\{\w+:-)[^}]*\}")
_USER_INFO = re.compile(r"(\w+://)\S*@")
_QUERY = re.compile(r"([?&;][^=&;\s]*=)[^&;\s]+")


def facts_of(folders: JobFolders, tree: Mapping[str, Any]) -> RunFacts:
    """What is kept of a run's beginning.

    Args:
        folders: the job's.
        tree: its file as it stands there.
    """
    config = folders.config
    return RunFacts(
        config=without_secrets(tree),
        versions=_versions(),
        host=socket.gethostname(),
        pid=os.getpid(),
        job_file=str(folders.path.resolve()) if folders.path else "",
        locked=config.lock.enabled,
        kept_runs=config.retention.runs,
        kept_tables=config.retention.tables,
    )


def without_secrets(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A job file's tree with nothing in it that may be secret: no value under a name that sounds so, none that is
    handed on to clients, classes and hooks, nothing that URLs have of users, passwords and queries. References such as
    `${PASSWORD}` stay."""
    return {str(key): _shown(value, str(key), hidden=False) for key, value in tree.items()}


def _shown(value: Any, key: str, *, hidden: bool) -> Any:
    hidden = hidden or key in _HANDED_ON or _SECRET.search(key) is not None
    if isinstance(value, Mapping):
        return {str(name): _shown(below, str(name), hidden=hidden) for name, below in value.items()}
    if isinstance(value, list):
        return [_shown(below, "", hidden=hidden) for below in value]
    if value is None or isinstance(value, bool):
        return value
    if hidden:
        return value if isinstance(value, str) and _REFERENCE.fullmatch(value) else _HIDDEN
    if not isinstance(value, str):
        return value if isinstance(value, int | float) else str(value)
    text = _DEFAULT.sub(rf"\1{_HIDDEN}}}", value)
    text = _USER_INFO.sub(rf"\1{_HIDDEN}@", text)
    return _QUERY.sub(rf"\1{_HIDDEN}", text) if "://" in text else text


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _NAMED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # run from its source folder, or without what is not needed
            found[name] = "not installed"
    return found
