"""When each task of a run read and when it committed, put together from task states and the run's table of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from distcommit.stores.history.attempt_counts import Attempt
from distcommit.stores.history.run_times import RunTime, TimeKind


class Lane(msgspec.Struct, frozen=True):
    """One attempt at a task. `phase` is empty, and `task` -1, if it died, or still lives: then only what it has read is
    known.

    `reads` and `commits`: from when to when it read a work unit, and committed what was ready, in milliseconds since
    1970; `datasets`: published by it.
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
        """Of whom it is."""
        return f"{self.phase} {self.task}" if self.phase else "not ended"

    @property
    def executor(self) -> str:
        """Where it ran, by its machine and the process that all Python workers of its executor come from."""
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
        """How long it did either."""
        return self.read_ms + self.commit_ms


def lanes_of(attempts: Iterable[Attempt], times: Mapping[str, Sequence[RunTime]]) -> list[Lane]:
    """All tasks that have read or committed anything: by phase, in the order of their beginnings, executor and number.

    Args:
        attempts: at work units.
        times: what tasks have told, by the digits that both know them by.
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
