"""Commands that run in this process, where runs share one Spark session.

A process of its own takes 2 s of a processor, and 8 s if it starts Spark.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from typer.testing import CliRunner

from distcommit.cli.main import app
from distcommit.spark.session import active_session, open_session, stop_session
from distcommit.spark.session_settings import SparkSettings
from tests.servers.spark_start import start_cheaply

MASTER = "local[2,4]"
"""The master of the shared session."""


def open_shared_session() -> None:
    """Open the Spark session that runs of this process share, unless one is open."""
    if active_session() is None:
        start_cheaply()
        session = open_session(SparkSettings(master=MASTER), "shared")
        atexit.register(stop_session, session)


def run_here(
    arguments: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a distcommit command in this process and that folder, and return its exit code and output."""
    open_shared_session()
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(app, [*arguments], prog_name="distcommit", env=env)
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess([*arguments], done.exit_code, done.stdout, done.stderr)
