"""Progress of a run on stderr: two live lines on a terminal, otherwise two plain lines every 30 seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as LiveProgress
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from distcommit.core.support.counts import count_of
from distcommit.engine.run_events import Event, Observer, PhaseBegan, PhaseEnded, Progressed

_PLAIN_EVERY_S = 30.0
_RATE_OVER_S = 5.0
_ACTIVITIES_SHOWN = 5
_TIME = " · time: "
_BESIDE = 14
"""Columns of the terminal that the spinner (or the seconds) and the clock occupy."""
_PLAIN_WIDTH = 80
_SETTLED_S = 3.0
"""Seconds of reading after which the remaining time is estimated."""


@contextmanager
def shown_progress(console: Console, first: str = "start Spark", unit: str = "") -> Iterator[Observer]:
    """Show the progress of a run until the block ends.

    Args:
        first: name of the phase before the first event.
        unit: unit of the sizes that the source plans: `records`, `bytes`, or empty.
    """
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with LiveProgress(*columns, console=console, transient=True, refresh_per_second=8) as counters:
            line = counters.add_task(first)
            yield _LiveLine(counters, line, unit)
    else:
        yield _PlainLines(console, first, unit)


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


@dataclass(slots=True)
class Target:
    """The planned work of a run, and the time when reading began.

    Attributes:
        unit: unit of planned sizes.
        datasets: number of planned datasets; 0 before the plan is known.
        records: number of planned records; 0 if it is not known.
    """

    unit: str = ""
    datasets: int = 0
    records: int = 0
    _began_s: float = 0

    def observe(self, event: Event, now_s: float) -> None:
        """Store the counts of the plan, and the time at which reading begins."""
        match event:
            case PhaseEnded(phase="plan", counts=counts):
                self.datasets = counts.datasets_planned
                self.records = counts.size_planned if self.unit == "records" else 0
            case PhaseBegan(phase="ingest"):
                self._began_s = now_s

    def seconds_left(self, progress: Progressed, now_s: float) -> float | None:
        """Return the estimated seconds until all records are read, or else all datasets committed; None if unknown."""
        done, planned = (
            (progress.counts.records_read, self.records)
            if self.records
            else (progress.counts.datasets_committed, self.datasets)
        )
        elapsed_s = now_s - self._began_s
        if not self._began_s or elapsed_s < _SETTLED_S or not 0 < done < planned:
            return None
        return elapsed_s * (planned - done) / done


class _LiveLine:
    """Observer that updates two lines: progress and speed."""

    def __init__(self, counters: LiveProgress, line: TaskID, unit: str) -> None:
        self._live, self._line, self._rate, self._target = counters, line, Rate(), Target(unit)

    def observe(self, event: Event) -> None:
        now_s = time.monotonic()
        self._target.observe(event, now_s)
        if isinstance(event, Progressed):
            text = _described(event, self._rate, self._target, now_s, self._live.console.width - _BESIDE)
            self._live.update(self._line, description=escape(text))


class _PlainLines:
    """Observer that prints progress and speed when a phase begins, and every 30 seconds."""

    def __init__(self, console: Console, first: str, unit: str) -> None:
        self._console = console
        self._began_s, self._rate, self._target = time.monotonic(), Rate(), Target(unit)
        self._phase, self._shown_s = "", 0.0
        self._line(first)

    def observe(self, event: Event) -> None:
        now_s = time.monotonic()
        self._target.observe(event, now_s)
        if not isinstance(event, Progressed):
            return
        text = _described(event, self._rate, self._target, now_s, _PLAIN_WIDTH - _BESIDE)
        due = now_s - self._shown_s >= _PLAIN_EVERY_S
        if event.phase != self._phase or due:
            self._phase = event.phase
            self._line(text)

    def _line(self, text: str) -> None:
        now_s = time.monotonic()
        self._shown_s = now_s
        lines = text.replace("\n", "\n" + " " * (_BESIDE - 1))
        self._console.print(f"at {now_s - self._began_s:6.1f} s  {lines}", markup=False, soft_wrap=True)


def _described(progress: Progressed, rate: Rate, target: Target, now_s: float, width: int) -> str:
    done = describe(progress.phase, progress, target, now_s, width)
    speed = describe_speed(progress, *rate.of(progress, now_s), width)
    return f"{done}\n{speed}" if speed else done


def describe(phase: str, progress: Progressed, target: Target, now_s: float, width: int = 0) -> str:
    """Return the phase, the finished and planned work, and the remaining time: one line, or more if a line would exceed
    `width` columns (0: no limit).
    """
    parts = []
    if progress.tasks_running or progress.tasks_finished:
        if progress.counts.failures:
            parts.append(count_of(progress.counts.failures, "failure"))
        parts.append(f"{_done(progress.counts.datasets_committed, target.datasets)} datasets")
        parts.append(f"{_done(progress.counts.records_read, target.records)} records")
        if (left_s := target.seconds_left(progress, now_s)) is not None:
            parts.append(f"{_duration(left_s)} left")
    return _wrapped(f"{phase:<8}".rstrip() if not parts else f"{phase:<6}", parts, width)


def _wrapped(text: str, parts: Sequence[str], width: int) -> str:
    lines = [text]
    for part in parts:
        longer = f"{lines[-1]} · {part}"
        if width and len(longer) > width:
            lines.append(part)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def _done(done: int, planned: int) -> str:
    return f"{_short(done)} of {_short(planned)}" if planned else _short(done)


def _short(number: int) -> str:
    if number < 1_000_000:
        return f"{number:,}"
    return f"{number / 1e6:,.1f} M" if number < 1_000_000_000 else f"{number / 1e9:,.1f} bn"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def describe_speed(progress: Progressed, records_per_s: float, bytes_per_s: float, width: int = 0) -> str:
    """Return one line: the reading rate in total and per task, and the most time-consuming activities; empty before the
    first record.

    Up to five activities are listed, and the others are summed as `others`. If the line would exceed `width` columns
    (0: no limit), it lists four or three activities. If it is still too long, it has no rates per task, and lists five
    activities down to one. Otherwise it has the total rate alone, even if that is too long. Without activities, `width`
    is ignored.
    """
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
    total = sum(spent.values())
    largest = sorted(spent.items(), key=lambda item: -item[1])
    shares = [(activity, round(100 * seconds / total)) for activity, seconds in largest if total > 0]
    shown = [f"{activity} {share} %" for activity, share in shares[:most] if share]
    remaining = sum(share for _, share in shares[most:])
    return ", ".join([*shown, *([f"others {remaining} %"] if remaining else [])])
