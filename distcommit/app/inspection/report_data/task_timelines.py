"""The times at which each task of a run read and committed, from task states and the run's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from distcommit.stores.history.attempt_counts import Attempt
from distcommit.stores.history.run_table import RowKind, TaskIdentity, TaskRows


class TaskTimeline(msgspec.Struct, frozen=True):
    """The recorded times and counts of an attempt at a task.

    Attributes:
        phase: phase of the run; empty if the attempt died or is still alive: then only its reads are known.
        task: number of the task in its phase; -1 if `phase` is empty.
        host: host name of the executor; empty if `phase` is empty.
        daemon_pid: process id from which the Python worker was forked, one per executor; 0 if unknown.
        began_ms: start in milliseconds since 1970; 0 if unknown.
        ended_ms: end, or end of the last read if the attempt has no end, in milliseconds since 1970; 0 if unknown.
        reads: start and end of each work unit that the attempt read, in milliseconds since 1970.
        commits: start and end of each period in which the attempt committed, in milliseconds since 1970.
        failed: number of attempts at work units that failed.
        records: records read.
        bytes_read: payload bytes read.
        datasets: number of datasets that the attempt committed.
    """

    phase: str
    task: int
    host: str
    daemon_pid: int
    began_ms: int
    ended_ms: int
    reads: tuple[tuple[int, int], ...] = ()
    commits: tuple[tuple[int, int], ...] = ()
    failed: int = 0
    records: int = 0
    bytes_read: int = 0
    datasets: int = 0

    @property
    def name(self) -> str:
        """The phase and the number of the task; `not ended` if `phase` is empty."""
        return f"{self.phase} {self.task}" if self.phase else "not ended"

    @property
    def executor(self) -> str:
        """The host and `daemon_pid`, which identify the executor; empty if `phase` is empty."""
        return f"{self.host} {self.daemon_pid}" if self.phase else ""

    @property
    def read_ms(self) -> int:
        return _length(self.reads)

    @property
    def commit_ms(self) -> int:
        return _length(self.commits)

    @property
    def busy_ms(self) -> int:
        """Time spent reading or committing, in milliseconds."""
        return self.read_ms + self.commit_ms


def timelines_of(attempts: Iterable[Attempt], tasks: Iterable[TaskRows]) -> list[TaskTimeline]:
    """Return the tasks that read or committed, ordered by phase, executor and number."""
    read: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        read.setdefault(attempt.writer, []).append(attempt)
    worked = {rows.task.writer: rows for rows in tasks if rows.rows[0].row_kind is RowKind.TASK}
    timelines = [_timeline(read.get(writer, []), worked.get(writer)) for writer in {**read, **worked}]
    begins: dict[str, int] = {}
    for timeline in timelines:
        begins[timeline.phase] = min(begins.get(timeline.phase, timeline.began_ms), timeline.began_ms)
    return sorted(
        timelines,
        key=lambda timeline: (
            begins[timeline.phase],
            timeline.phase,
            timeline.executor,
            timeline.task,
            timeline.began_ms,
        ),
    )


def _timeline(attempts: Sequence[Attempt], recorded: TaskRows | None) -> TaskTimeline:
    task, rows = (recorded.task, recorded.rows) if recorded else (TaskIdentity("", -1, ""), [])
    reads = tuple(sorted((attempt.started_ms, attempt.finished_ms) for attempt in attempts))
    spans = [(row.row_kind, (row.began_ms, row.ended_ms)) for row in rows]
    commits = tuple(sorted(span for kind, span in spans if kind is RowKind.COMMITS))
    known = [*reads, *commits, *(span for kind, span in spans if kind is RowKind.TASK)]
    return TaskTimeline(
        phase=task.phase,
        task=task.task,
        host=task.host,
        daemon_pid=task.daemon_pid,
        began_ms=min((began for began, _ in known), default=0),
        ended_ms=max((ended for _, ended in known), default=0),
        reads=reads,
        commits=commits,
        failed=sum(attempt.counts.attempts_failed for attempt in attempts),
        records=sum(attempt.counts.records_read for attempt in attempts),
        bytes_read=sum(attempt.counts.bytes_read for attempt in attempts),
        datasets=sum(row.counts.datasets_committed for row in rows if row.row_kind is RowKind.DATASET),
    )


def _length(spans: Iterable[tuple[int, int]]) -> int:
    return sum(max(0, ended - began) for began, ended in spans)
