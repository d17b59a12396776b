"""Kill a run of the demo in the middle of its commit.

Spark's Python daemon leaves its parent's process group. Therefore a run has its own session, whose processes are found
in /proc.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.state.job_store import JobStore

ENOUGH_PENDING = 3
"""Number of sealed datasets from which the run is killed."""

_IDLE_POLL_S = 0.02
_COMMIT_POLL_S = 0.001
_LONGEST_STEP_S = 0.0003
_KILL_TIMEOUT_S = 10.0
_NICENESS = 10
_PACKAGE_ROOT = Path(__file__).resolve().parents[3]


class RunProcess:
    """The command `python -m distcommit ...` in its own session, with its JVM, Python daemon and workers.

    Leaving the `with` block kills all of these processes.

    Args:
        arguments: arguments of `distcommit`.
        stdout, stderr: files for its output.
        niceness: niceness of all processes, so that the watcher is faster.

    Raises:
        ConfigurationError: if this machine has no /proc.
    """

    def __init__(self, arguments: Sequence[str], stdout: Path, stderr: Path, *, niceness: int = _NICENESS) -> None:
        if not Path("/proc/self/stat").exists():
            raise ConfigurationError("the demo kills a run by its processes, for which it needs Linux's /proc")
        self.stdout, self.stderr = stdout, stderr
        self.killed = 0
        self._known: set[int] = set()
        path = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]))
        with _created(stdout) as out, _created(stderr) as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "distcommit", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        with contextlib.suppress(ProcessLookupError):  # inherited by all that it starts
            os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)

    def __enter__(self) -> RunProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the command to end, and return its exit code; None after `timeout_s` seconds."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    @property
    def has_ended(self) -> bool:
        """Whether the command has ended. Its other processes may be alive."""
        return self._process.poll() is not None

    def processes(self) -> list[int]:
        return processes_of_session(self._process.pid)

    def freeze(self) -> None:
        """Send SIGSTOP to all processes, and wait until none is running. Raises TimeoutError after 10 seconds."""
        for pid in self._known:  # at once; a look at all of /proc takes longer
            if _is_of_session(pid, self._process.pid):
                _signal(pid, signal.SIGSTOP)
        frozen: set[int] = set()
        while new := [pid for pid in self.processes() if pid not in frozen]:  # one may have forked meanwhile
            for pid in new:
                _signal(pid, signal.SIGSTOP)
            frozen.update(new)
        self._known = frozen
        deadline_s = time.monotonic() + _KILL_TIMEOUT_S
        while any(state not in "TtZX" for state in _session(self._process.pid).values()):
            if time.monotonic() > deadline_s:
                raise TimeoutError("a process does not stop")
            time.sleep(0)

    def thaw(self) -> None:
        for pid in self.processes():
            _signal(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL to all processes until none is left, and add their number to `killed`. Raises TimeoutError after
        10 seconds.
        """
        killed: set[int] = set()
        deadline_s = time.monotonic() + _KILL_TIMEOUT_S
        while alive := self.processes():
            for pid in alive:
                _signal(pid, signal.SIGKILL)
            killed.update(alive)
            self._process.poll()
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"processes {alive} survive SIGKILL")
            time.sleep(0.005)
        self._process.wait()
        self.killed += len(killed)


@dataclass(frozen=True, slots=True)
class CommitSnapshot:
    """The pending sequences of a frozen run, and the locations of their files.

    Attributes:
        pending: number of sequences, one for each dataset.
        published: number of published files.
        staged: number of files in staging.
        half_published: number of datasets with some files published and some staged.
        untouched: number of datasets without a published file.
        watermarks_unchanged: whether no watermark has moved since the sequences were planned.
    """

    pending: int
    published: int
    staged: int
    half_published: int
    untouched: int
    watermarks_unchanged: bool

    def is_mid_commit(self, least_share: float) -> bool:
        """Return whether a kill now leaves work for a replay, with more than `least_share` of the files published."""
        files = self.published + self.staged
        return self.pending >= ENOUGH_PENDING and self.staged > 0 and self.published > least_share * files


class CommitWatcher:
    """A reader of a job's store while a run uses it."""

    def __init__(self, store: JobStore) -> None:
        self._context = StepContext(store.fs, store.roots.staging, store.roots.output)
        self._job_log = store.job_log()
        self._logs = [store.bucket_log(bucket) for bucket in range(store.buckets)]
        self._old_epoch = self._job_log.refresh().fence_epoch

    def run_has_begun(self) -> bool:
        """Return whether a run has begun since the watcher was created."""
        return self._job_log.refresh().fence_epoch > self._old_epoch

    def pending(self) -> list[DatasetState]:
        """Return the datasets whose sequence was sealed since the watcher was created and is still open."""
        return [
            state
            for log in self._logs
            for state in log.refresh().datasets.values()
            if state.status is DatasetStatus.PENDING
            and state.sequence is not None
            and state.sequence.epoch > self._old_epoch
        ]

    def committed(self) -> int:
        """Return the number of datasets that any run has committed."""
        return sum(1 for log in self._logs for state in log.refresh().datasets.values() if state.done_epoch)

    def snapshot(self) -> CommitSnapshot:
        """Return the files of pending sequences. Exact only while the run is frozen or dead."""
        states = self.pending()
        counts = [self._counts(state) for state in states]
        return CommitSnapshot(
            pending=len(states),
            published=sum(published for published, _ in counts),
            staged=sum(staged for _, staged in counts),
            half_published=sum(1 for published, staged in counts if published and staged),
            untouched=sum(1 for published, _ in counts if not published),
            watermarks_unchanged=all(s.sequence is not None and s.watermark == s.sequence.low for s in states),
        )

    def _counts(self, state: DatasetState) -> tuple[int, int]:
        published = staged = 0
        for step in load_steps(state.sequence.steps if state.sequence else (), self._context):
            if isinstance(step, FsRenameCommitStep):
                if self._context.fs.status(step.target) is not None:
                    published += 1
                if self._context.fs.status(step.source) is not None:
                    staged += 1
        return published, staged


def kill_in_mid_commit(
    run: RunProcess, watcher: CommitWatcher, timeout_s: float = math.inf, least_share: float = 0
) -> CommitSnapshot | None:
    """Kill the run when some files of its sealed sequences are published and others are not.

    As soon as sequences are pending, the run is frozen and inspected. If it is too early, the run continues for a
    moment.

    Args:
        watcher: a watcher that was created before the run began.
        least_share: share of published files that must be exceeded.

    Returns:
        the state at the kill; None if the run ended by itself, or was not killed within `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    started, step_s, before = False, 0.0, None
    while not run.has_ended and time.monotonic() < deadline_s:
        started = started or watcher.run_has_begun()
        if not started or not _is_pending(watcher):
            time.sleep(_COMMIT_POLL_S if started else _IDLE_POLL_S)
            continue
        run.freeze()
        snapshot = watcher.snapshot()
        if snapshot.is_mid_commit(least_share):
            run.kill()
            return watcher.snapshot()
        step_s = min(_LONGEST_STEP_S, step_s + _LONGEST_STEP_S / 8) if snapshot == before else 0.0
        before = snapshot
        run.thaw()
        time.sleep(step_s)  # a hundred renames take a millisecond: small steps, but not thousands of them
    return None


def _is_pending(watcher: CommitWatcher) -> bool:
    try:
        return len(watcher.pending()) >= ENOUGH_PENDING
    except (DistcommitError, OSError):  # a look from outside may meet a log that is just being shortened
        return False


def processes_of_session(session_id: int) -> list[int]:
    """Return the live processes of a session."""
    return list(_session(session_id))


def _session(session_id: int) -> Mapping[int, str]:
    processes: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = _stat_fields(entry.name)
                if int(fields[3]) == session_id and fields[0] not in "ZX":
                    processes[int(entry.name)] = fields[0]
    return processes


def _is_of_session(pid: int, session_id: int) -> bool:
    try:
        return int(_stat_fields(str(pid))[3]) == session_id
    except OSError:
        return False


def _stat_fields(pid: str) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on: state, parent, process group, session."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        yield file
