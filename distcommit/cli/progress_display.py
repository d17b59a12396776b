"""Progress of a run on stderr: two live lines on a terminal, else a plain line every few seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as LiveProgress
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from distcommit.engine.events import Event, Observer, Progressed

_PLAIN_EVERY_S = 5.0
_RATE_OVER_S = 5.0
_ACTIVITIES_SHOWN = 5
_TIME = " · time: "
_BESIDE = 12
"""Columns of a terminal that the spinner and the clock take."""


@contextmanager
def shown_progress(console: Console, first: str = "start Spark") -> Iterator[Observer]:
    """Show the progress of a run until the block ends; `first` names the phase before the first event."""
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with LiveProgress(*columns, console=console, transient=True, refresh_per_second=8) as live:
            line = live.add_task(first)
            yield _LiveLine(live, line)
    else:
        yield _PlainLines(console, first)


@dataclass(slots=True)
class Rate:
    """Reading rate over the last seconds."""

    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    def of(self, progress: Progressed, now_s: float) -> tuple[float, float]:
        """Return records and bytes per second; 0 until there are two measurements."""
        now = now_s, progress.counts.records_read, progress.counts.bytes_read
        if self._seen and now[1] < self._seen[-1][1]:  # another phase, or a restarted task
            self._seen.clear()
        self._seen.append(now)
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - _RATE_OVER_S:
            self._seen.popleft()
        first_s, records, size = self._seen[0]
        elapsed_s = now_s - first_s
        return ((now[1] - records) / elapsed_s, (now[2] - size) / elapsed_s) if elapsed_s > 0 else (0.0, 0.0)


class _LiveLine:
    """Observer that updates two lines: progress and speed."""

    def __init__(self, live: LiveProgress, line: TaskID) -> None:
        self._live, self._line, self._rate = live, line, Rate()

    def observe(self, event: Event) -> None:
        if isinstance(event, Progressed):
            lines, rate = [describe(event.phase, event)], self._rate.of(event, time.monotonic())
            if speed := describe_speed(event, *rate, self._live.console.width - _BESIDE):
                lines.append(speed)
            self._live.update(self._line, description=escape("\n".join(lines)))


class _PlainLines:
    """Observer that prints a line when a phase begins, and every few seconds if it has changed."""

    def __init__(self, console: Console, first: str) -> None:
        self._console = console
        self._began_s, self._rate = time.monotonic(), Rate()
        self._phase, self._text, self._shown_s = "", "", 0.0
        self._line(first)

    def observe(self, event: Event) -> None:
        if not isinstance(event, Progressed):
            return
        speed = describe_speed(event, *self._rate.of(event, time.monotonic()))
        text = describe(event.phase, event) + (f" · {speed}" if speed else "")
        due = time.monotonic() - self._shown_s >= _PLAIN_EVERY_S and text != self._text
        if event.phase != self._phase or due:
            self._phase = event.phase
            self._line(text)

    def _line(self, text: str) -> None:
        now_s = time.monotonic()
        self._text, self._shown_s = text, now_s
        self._console.print(f"{now_s - self._began_s:6.1f} s  {text}", markup=False, soft_wrap=True)


def describe(phase: str, progress: Progressed) -> str:
    """Return one line: the phase, and the counts of its tasks so far."""
    parts = []
    if progress.tasks_running or progress.tasks_finished:
        parts.append(f"{progress.tasks_running} tasks running, {progress.tasks_finished} finished")
        parts.append(f"{progress.counts.datasets_committed:,} datasets committed")
        parts.append(f"{progress.counts.records_read:,} records")
    if progress.counts.failures:
        parts.append(f"{progress.counts.failures:,} failures")
    return " · ".join([f"{phase:<8}", *parts]).rstrip()


def describe_speed(progress: Progressed, records_per_s: float, bytes_per_s: float, width: int = 0) -> str:
    """Return one line: the reading rate of all tasks and of each, and the activities that take their time; empty before
    a record was read. `width`: the longest line (0: any). If it is too short, tasks are left out first, then the
    activities with the least time."""
    if not progress.counts.records_read:
        return ""
    rate, tasks = f"{records_per_s:,.0f} records/s, {bytes_per_s / 1e6:,.1f} MB/s", ""
    if progress.tasks_running > 1 and progress.slowest:
        tasks = f" (a task {progress.slowest:,.0f} to {progress.fastest:,.0f})"
    if not progress.spent:
        return rate + tasks
    shares = {most: _TIME + _shares(progress.spent, most) for most in range(_ACTIVITIES_SHOWN, 0, -1)}
    texts = [f"{rate}{tasks}{shares[most]}" for most in (_ACTIVITIES_SHOWN, 4, 3)]
    texts += [f"{rate}{shares[most]}" for most in shares]
    return next((text for text in texts if not width or len(text) <= width), rate)


def _shares(spent: Mapping[str, float], most: int) -> str:
    """Return the activities that took most of the time, in percent."""
    total = sum(spent.values())
    largest = sorted(spent.items(), key=lambda item: -item[1])
    shares = [(activity, round(100 * seconds / total)) for activity, seconds in largest if total > 0]
    shown = [f"{activity} {share} %" for activity, share in shares[:most] if share]
    left = sum(share for _, share in shares[most:])
    return ", ".join([*shown, *([f"others {left} %"] if left else [])])
