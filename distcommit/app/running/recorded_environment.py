"""Facts about job and environment for the record of a run, without secrets."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import socket
from collections.abc import Mapping
from typing import Any

import msgspec

from distcommit.app.job_file.environment_variables import with_variables
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.secrets import without_secrets
from distcommit.stores.history.run_records import RunFacts

_ITERATIONS = 200_000
_COMPARED = (
    *("distcommit", "pyspark", "pyarrow", "confluent-kafka"),
    *("duckdb", "fastavro", "msgspec", "protobuf", "ptars"),
)
"""Distributions that affect the records that a run writes. A killed run with other versions is not resumed."""


def facts_of(folders: JobFolders, tree: Mapping[str, Any]) -> RunFacts:
    """Return the facts for the record of a run's beginning.

    Args:
        tree: content of the job file before variables are substituted.
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
        settings_digest=_digest(tree, config.job) if config.task.resume_across_runs else msgspec.UNSET,
    )


def _digest(tree: Mapping[str, Any], job: str) -> str:
    """Return a digest of the settings, with secrets and values of environment variables. It is slow to compute, so that
    a password cannot be found by trial.
    """
    settings = repr(with_variables(tree)).encode()
    return hashlib.pbkdf2_hmac("sha256", settings, job.encode(), _ITERATIONS).hex()


def _versions() -> dict[str, str]:
    results = {"python": platform.python_version()}
    for name in _COMPARED:
        try:
            results[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # run from its source folder, or without an optional library
            results[name] = "not installed"
    return results
