"""Facts about job and environment for the record of a run, without secrets."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping
from typing import Any

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.secrets import without_secrets
from distcommit.stores.history.run_records import RunFacts

_NAMED = ("distcommit", "pyspark", "pyarrow", "confluent-kafka")


def facts_of(folders: JobFolders, tree: Mapping[str, Any]) -> RunFacts:
    """Return the facts for the record of a run's beginning.

    Args:
        folders: the job's configuration and folders.
        tree: the content of the job file before variables are substituted.
    """
    config = folders.config
    return RunFacts(
        config=without_secrets(tree),
        versions=_versions(),
        host=socket.gethostname(),
        pid=os.getpid(),
        job_file=str(folders.path.resolve()) if folders.path else "",
        is_locked=config.lock.enabled,
        retained_runs=config.retention.runs,
        retained_tables=config.retention.tables,
    )


def _versions() -> dict[str, str]:
    results = {"python": platform.python_version()}
    for name in _NAMED:
        try:
            results[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # run from its source folder, or without an optional library
            results[name] = "not installed"
    return results
