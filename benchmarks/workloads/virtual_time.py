"""Executors on virtual time: traces of the product's tasks, simulated on any number of executors.

The task that commits a bucket owns it, so that its work does not depend on other tasks: its trace holds for any number
of executors. They share the metadata server, which answers one request after the other, and the driver, which works
while they wait and launches their tasks one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.workloads.traced_run import FREE, Trace, TracedRun


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of a run.

    Attributes:
        latency_s: from a request to its answer, at an idle server.
        service_s: the part of that time in which the server works on this request alone.
        launch_s: the driver's time to launch a task.
    """

    latency_s: float
    service_s: float
    launch_s: float


@dataclass(frozen=True, slots=True)
class Laid:
    """Duration of a run on virtual time.

    `seconds` in all; during `driver_s` of them all executors wait for the driver. `busy_s`: the server works.
    `imbalance`: the slowest executor of a job over their mean, weighted by time.
    """

    seconds: float
    driver_s: float
    busy_s: float
    imbalance: float


def lay_out(run: TracedRun, executors: int, around: Surroundings) -> Laid:
    """Simulate the run on that many executors with one slot each."""
    now = driver_s = busy_s = in_jobs = mean_in_jobs = 0.0
    for traces, is_job in zip(run.stages, run.jobs, strict=True):
        busy_s += sum(trace.calls for trace in traces) * around.service_s
        if not is_job:
            took = sum(trace.cpu_s + trace.calls * around.latency_s for trace in traces)
            now, driver_s = now + took, driver_s + took
            continue
        ends = _job(traces, executors, around)
        in_jobs, mean_in_jobs = in_jobs + max(ends), mean_in_jobs + sum(ends) / len(ends)
        now += max(ends)
    return Laid(now, driver_s, busy_s, in_jobs / mean_in_jobs if mean_in_jobs else 1.0)


def _job(traces: list[Trace], executors: int, around: Surroundings) -> list[float]:
    """Return the time at which each executor has ended its last task; the job begins at 0.

    Events are ordered by time, so that the server answers in the order of requests.
    """
    waiting = iter(enumerate(traces))
    ends, server_free = [0.0] * min(executors, len(traces)), 0.0
    events: list[tuple[float, int, Iterator[float]]] = []

    def take(executor: int, at: float) -> None:
        number, trace = next(waiting, (0, None))
        ends[executor] = at
        if trace is not None:
            launched = max(at, (number + 1) * around.launch_s)
            steps = _requests(trace)
            heapq.heappush(events, (launched + next(steps), executor, steps))

    for executor in range(len(ends)):
        take(executor, 0.0)
    while events:
        at, executor, steps = heapq.heappop(events)
        pause = next(steps, None)
        if pause is None:  # the event was the task's end, not a request
            take(executor, at)
            continue
        server_free = max(server_free, at) + around.service_s
        answered = server_free + around.latency_s - around.service_s
        heapq.heappush(events, (answered + pause, executor, steps))
    return ends


def _requests(trace: Trace) -> Iterator[float]:
    """Return the processor seconds before each request, and at last those after the last one."""
    before = 0.0
    for cpu, kind in trace.steps:
        before += cpu
        if kind not in FREE:
            yield before
            before = 0.0
    yield before + trace.rest_s
