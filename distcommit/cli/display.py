"""Progress of a run on stderr: one live line on a terminal, else a plain line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as LiveProgress
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from distcommit.engine.events import Event, Observer, Progress, Progressed

_PLAIN_EVERY_S = 5.0


@contextmanager
def shown_progress(console: Console, first: str = "start Spark") -> Iterator[Observer]:
    """Shows how far the run is until the block ends; `first`: what it does before it tells anything."""
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with LiveProgress(*columns, console=console, transient=True, refresh_per_second=8) as live:
            line = live.add_task(first)
            yield _LiveLine(live, line)
    else:
        yield _PlainLines(console, first)


class _LiveLine:
    """One line that changes."""

    def __init__(self, live: LiveProgress, line: TaskID) -> None:
        self._live, self._line = live, line

    def observe(self, event: Event) -> None:
        if isinstance(event, Progressed):
            self._live.update(self._line, description=describe(event.phase, event.progress))


class _PlainLines:
    """A line when a phase begins, and every few seconds; repeats nothing that has not changed."""

    def __init__(self, console: Console, first: str) -> None:
        self._console = console
        self._began_s = time.monotonic()
        self._phase, self._text, self._shown_s = "", "", 0.0
        self._line(first)

    def observe(self, event: Event) -> None:
        if not isinstance(event, Progressed):
            return
        text = describe(event.phase, event.progress)
        due = time.monotonic() - self._shown_s >= _PLAIN_EVERY_S and text != self._text
        if event.phase != self._phase or due:
            self._phase = event.phase
            self._line(text)

    def _line(self, text: str) -> None:
        now_s = time.monotonic()
        self._text, self._shown_s = text, now_s
        self._console.print(f"{now_s - self._began_s:6.1f} s  {text}", markup=False, soft_wrap=True)


def describe(phase: str, progress: Progress) -> str:
    """One line: the phase, and what the tasks have done in it so far."""
    parts = []
    if progress.tasks_running or progress.tasks_finished:
        parts.append(f"{progress.tasks_running} tasks running, {progress.tasks_finished} finished")
        parts.append(f"{progress.datasets_committed:,} datasets committed")
        parts.append(f"{progress.records_read:,} records")
    if progress.failures:
        parts.append(f"{progress.failures:,} failures")
    return " · ".join([f"{phase:<8}", *parts]).rstrip()
