"""Check in a task that its machine sees the store."""

from __future__ import annotations

import socket

from distcommit.core.errors import ConfigurationError, DistcommitError, error_text
from distcommit.engine.node_failures import NodeFailedError
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.state.job_store import marker_path, read_marker

_SEEN: set[str] = set()
"""Ids of the stores that this process has seen."""


def require_visible_store(settings: RunSettings) -> None:
    """Check once in each process that this machine sees the run's store, not an empty folder or another job's store.

    If the store cannot be read, the check passes: the task itself reports the error. A damaged marker counts as
    missing.

    Raises:
        NodeFailedError: if this machine does not see the store, and another executor would repeat the task.
        ConfigurationError: if this machine does not see the store, and no other executor would repeat the task.
    """
    store = settings.store
    if store.store_id in _SEEN:
        return
    found = "no such file"
    try:
        marker = read_marker(store.fs, store.roots, repairable=True)
    except (OSError, DistcommitError):
        return
    if marker is not None:
        found = f"the store {marker.store_id}"
        if marker.store_id == store.store_id:
            _SEEN.add(store.store_id)
            return
    error = ConfigurationError(
        "an executor does not see the store",
        id="STORE_NOT_VISIBLE",
        path=marker_path(store.roots),
        host=socket.gethostname(),
        expected=f"the store {store.store_id}, as the driver sees it",
        found=found,
        todo="mount the folders of section paths on each machine under the same path, or use URLs of a shared"
        " file system",
    )
    if settings.hands_back:
        raise NodeFailedError(error_text(error, 1000)) from error
    raise error
