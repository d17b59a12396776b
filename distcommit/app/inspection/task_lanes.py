"""When each task of a run read and committed, from task states and the run's table of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from distcommit.stores.history.attempt_counts import Attempt
from distcommit.stores.history.run_times import RunTime, TimeKind


class Lane(msgspec.Struct, frozen=True):
    """One attempt at a task."""

    phase: str
    """Empty if it died or is still alive: then only its reads are known."""
    task: int
    """-1 if `phase` is empty."""
    host: str
    daemon_pid: int
    began_ms: int
    ended_ms: int
    reads: tuple[tuple[int, int], ...] = ()
    """Begin and end of each work unit that it read, in milliseconds since 1970."""
    commits: tuple[tuple[int, int], ...] = ()
    """Begin and end of each commit, in milliseconds since 1970."""
    failed: int = 0
    """Work units that failed."""
    records: int = 0
    bytes_read: int = 0
    datasets: int = 0
    """How many it published."""

    @property
    def name(self) -> str:
        """The phase and the task's number."""
        return f"{self.phase} {self.task}" if self.phase else "not ended"

    @property
    def executor(self) -> str:
        """The machine, and the process that all Python workers of the executor come from."""
        return f"{self.host} {self.daemon_pid}" if self.phase else ""

    @property
    def read_ms(self) -> int:
        """How long it read."""
        return _length(self.reads)

    @property
    def commit_ms(self) -> int:
        """How long it committed."""
        return _length(self.commits)

    @property
    def busy_ms(self) -> int:
        """How long it read or committed."""
        return self.read_ms + self.commit_ms


def lanes_of(attempts: Iterable[Attempt], times: Mapping[str, Sequence[RunTime]]) -> list[Lane]:
    """Return all tasks that read or committed anything, by phase in order of their beginnings, executor and number.

    Args:
        attempts: at work units.
        times: recorded times by writer.
    """
    read: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        read.setdefault(attempt.writer, []).append(attempt)
    lanes = [_lane(read.get(writer, []), times.get(writer, ())) for writer in {**read, **times}]
    begins: dict[str, int] = {}
    for lane in lanes:
        begins[lane.phase] = min(begins.get(lane.phase, lane.began_ms), lane.began_ms)
    return sorted(lanes, key=lambda lane: (begins[lane.phase], lane.phase, lane.executor, lane.task, lane.began_ms))


def _lane(attempts: Sequence[Attempt], rows: Sequence[RunTime]) -> Lane:
    reads = tuple(sorted((each.started_ms, each.finished_ms) for each in attempts))
    commits = tuple(sorted((row.began_ms, row.ended_ms) for row in rows if row.kind is TimeKind.COMMITS))
    task = next((row for row in rows if row.kind is TimeKind.TASK), None)
    known = [*reads, *commits, *([(task.began_ms, task.ended_ms)] if task else [])]
    return Lane(
        phase=task.phase if task else "",
        task=task.task if task else -1,
        host=task.host if task else "",
        daemon_pid=task.daemon_pid if task else 0,
        began_ms=min((began for began, _ in known), default=0),
        ended_ms=max((ended for _, ended in known), default=0),
        reads=reads,
        commits=commits,
        failed=sum(1 for each in attempts if each.has_failed),
        records=sum(each.records_read for each in attempts),
        bytes_read=sum(each.bytes_read for each in attempts),
        datasets=len({row.dataset for row in rows if row.kind is TimeKind.PUBLISHED}),
    )


def _length(spans: Iterable[tuple[int, int]]) -> int:
    return sum(max(0, ended - began) for began, ended in spans)
