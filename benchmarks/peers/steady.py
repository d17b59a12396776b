"""One undisturbed peer: its speed, its freshness, and its costs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from benchmarks.peers.audit import Watch, audit
from benchmarks.peers.peer import Peer, Place, Running
from benchmarks.peers.report import Steady, middle
from benchmarks.runner import Tell

TIMEOUT_S = 300.0
_TRICKLE_S, _PAUSE_S = 20.0, 0.25


class NotStartedError(Exception):
    """A peer never showed its first records; the message has the reason, as far as its log has it."""


def steady(peer: Peer, place: Place, records: int, idle_s: float, tell: Tell) -> Steady:
    """Start the peer on topics with a record each, leave it alone, send it a trickle, then a burst.

    If it does not show the first records of all topics within five minutes, nothing more is measured.

    Args:
        peer: the peer.
        place: an empty folder, and topics without records.
        records: of the burst.
        idle_s: how long it is left alone; scaled to a minute.
        tell: receives each finding.

    Raises:
        NotStartedError: if it shows no record of the first within five minutes, or ends.
    """
    stream, topics = place.stream, place.stream.topics
    most = 2 * topics + records + int(_TRICKLE_S / _PAUSE_S) * _per_pause(topics)
    with peer.prepare(place), Watch(lambda: peer.visible(place), most) as watch:
        stream.send(topics)
        began_s = time.time()
        with Running(peer, place) as running:
            first = _first_visible(running, watch, topics)
            start_s, start_cpu_s = watch.last_seen_s(0, topics) - began_s, running.cpu_s()
            tell(f"{peer.name}: {watch.seen(0, topics)} of {topics} topics visible {start_s:.1f} s after its start")
            result = Steady(topics=topics, complete=first, start_s=round(start_s, 2), start_cpu_s=round(start_cpu_s, 1))
            if first:
                result = replace(result, idle_cpu_s_per_minute=_idle(running, place.interval_s, idle_s))
                result = _burst(_trickle(result, place, watch), place, watch, running, records)
            peak_mb = running.peak_bytes / 1e6
        set = peer.visible(place)
        counted = audit(set, stream.sent, topics)
        sizes = [path.stat().st_size for path in set]
    result = replace(
        result,
        complete=result.complete and not counted.missing,
        peak_memory_mb=round(peak_mb),
        files=len(set),
        median_file_bytes=middle(sizes),
        other_files=_files_below(place.root) - len(set),
        counted=counted,
    )
    tell(f"{peer.name}: {result}")
    return result


def _trickle(result: Steady, place: Place, watch: Watch) -> Steady:
    """Send a little for 20 seconds; return the report with its freshness."""
    stream, begin = place.stream, place.stream.sent
    deadline_s = time.monotonic() + _TRICKLE_S
    while time.monotonic() < deadline_s:
        stream.send(_per_pause(stream.topics))
        time.sleep(_PAUSE_S)
    whole = watch.wait(begin, stream.sent, quiet_s=_quiet_s(place, result.start_s), timeout_s=TIMEOUT_S)
    delays = watch.delays_s(begin, stream.sent)
    if not len(delays):
        return replace(result, complete=False)
    p50, p99 = (round(float(item), 2) for item in np.quantile(delays, [0.5, 0.99]))
    return replace(result, complete=result.complete and whole, freshness_p50_s=p50, freshness_p99_s=p99)


def _burst(result: Steady, place: Place, watch: Watch, running: Running, records: int) -> Steady:
    """Send all of that at once; return the report with its speed."""
    stream, begin = place.stream, place.stream.sent
    cpu_s, began_s = running.cpu_s(), time.time()
    stream.send(records)
    whole = watch.wait(begin, stream.sent, quiet_s=_quiet_s(place, result.start_s), timeout_s=TIMEOUT_S)
    seconds, cpu_s = watch.last_seen_s(begin, stream.sent) - began_s, running.cpu_s() - cpu_s
    if seconds <= 0:
        return replace(result, complete=False)
    return replace(
        result,
        complete=result.complete and whole,
        records_per_s=round(records / seconds, 1),
        cpu_s_per_million_records=round(cpu_s / records * 1e6, 1),
    )


def _per_pause(topics: int) -> int:
    return max(1, topics // 10)


def _quiet_s(place: Place, start_s: float) -> float:
    """Return how long it may show nothing new until it is given up: by the time of a start on this machine."""
    return 30.0 + 3 * place.interval_s + 2 * max(0.0, start_s)


def _first_visible(running: Running, watch: Watch, topics: int) -> bool:
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s and running.alive():
        if watch.wait(0, topics, quiet_s=1, timeout_s=1):
            return True
    if watch.seen(0, topics):
        return False
    raise NotStartedError(f"{end_of(running.log)} {watch.error}".strip())


def _idle(running: Running, interval_s: int, idle_s: float) -> float | None:
    """Return its processor seconds for a minute, some intervals after the last record; None if it is not to be
    measured."""
    if not idle_s:
        return None
    time.sleep(2 * interval_s)
    before, began = running.cpu_s(), time.monotonic()
    time.sleep(idle_s)
    return round((running.cpu_s() - before) / (time.monotonic() - began) * 60, 2)


def end_of(log: Path, lines: int = 6) -> str:
    """Return the end of a log, in one line."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return " / ".join(line.strip() for line in text.strip().splitlines()[-lines:])[-1500:] or "its log is empty"


def _files_below(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))
