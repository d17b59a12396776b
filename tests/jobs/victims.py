"""Roles of a run's processes, so that one of them can be killed or stopped from outside."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from distcommit.app.demo.killed_run import RunProcess

Role = Literal["all", "driver", "jvm", "executor", "worker"]
"""The whole run; the driver's Python; the driver's JVM; an executor's JVM; a Python worker that runs a task."""

_DRIVER_JVM, _EXECUTOR_JVM, _DAEMON = (
    "org.apache.spark.deploy.SparkSubmit",
    "CoarseGrainedExecutorBackend",
    "pyspark.daemon",
)


def find(run: RunProcess, role: Role, others: Iterable[int] = ()) -> list[int]:
    """Return the run's live processes of that role. In local mode no executor has a JVM of its own.

    Args:
        run: the run.
        role: the role to find.
        others: processes of a cluster outside of the run; its executors and workers are among them.
    """
    own = run.processes()
    commands = {pid: _command(pid) for pid in (*own, *(others if role in {"executor", "worker"} else ()))}
    match role:
        case "all":
            return sorted(commands)
        case "driver":
            return [pid for pid in commands if _leads_its_session(pid)]
        case "jvm":
            return [pid for pid, command in commands.items() if _DRIVER_JVM in command]
        case "executor":
            return [pid for pid, command in commands.items() if _EXECUTOR_JVM in command]
        case "worker":
            daemons = {pid for pid, command in commands.items() if _DAEMON in command}
            return [pid for pid in daemons if _parent(pid) in daemons]


def strike(
    run: RunProcess, role: Role, what: signal.Signals, rng: random.Random, others: Iterable[int] = ()
) -> list[int]:
    """Send a signal to one process of that role (to every process for "all"); return the reached ones."""
    candidates = find(run, role, others)
    chosen = candidates if role == "all" else [rng.choice(candidates)] if candidates else []
    reached = []
    for pid in chosen:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue
        reached.append(pid)
    return reached


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _leads_its_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0
