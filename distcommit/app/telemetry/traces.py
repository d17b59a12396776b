"""A run as an OpenTelemetry trace: the driver's phases, their tasks, and the reads and commits of each task.

The trace is made at the run's end from its events and the recorded times of its tasks. Executors do not need
OpenTelemetry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from distcommit.app.inspection.runs import read_run
from distcommit.app.inspection.task_lanes import Lane, lanes_of
from distcommit.core.errors import ConfigurationError, DistcommitError, printable
from distcommit.core.run_outcome import RunOutcome
from distcommit.engine.clock import SystemClock
from distcommit.engine.events import Event, PhaseBegan, PhaseEnded, RunBegan, RunEnded
from distcommit.stores.history.attempts import Attempt
from distcommit.stores.history.run_table import TaskRows
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

MOST_SPANS = 1_500
"""Spans of a trace, at most: all phases, the busiest tasks, and of these the longest reads and commits."""
_MOST_TASKS = 200
_EXPORT_S = 10
_NS = 1_000_000
"""In a millisecond."""


class Traces:
    """Collects the events of a run, and makes a trace of it.

    Args:
        store: the job's.
        url: where an OpenTelemetry collector accepts traces by OTLP over HTTP, such as
            `http://collector:4318/v1/traces`.

    Raises:
        ConfigurationError: if OpenTelemetry is not installed.
    """

    def __init__(self, store: JobStore, url: str) -> None:
        self._store, self._url, self._library = store, url, _library()
        self._began: RunBegan | None = None
        self._ended: RunEnded | None = None
        self._begins: list[PhaseBegan] = []
        self._ends: list[PhaseEnded] = []

    def observe(self, event: Event) -> None:
        match event:
            case RunBegan():
                self._began = event
            case PhaseBegan():
                self._begins.append(event)
            case PhaseEnded():
                self._ends.append(event)
            case RunEnded():
                self._ended = event

    def close(self) -> None:
        """Send the trace of an ended run. A failure is only logged."""
        if self._began is None or self._ended is None:
            return
        try:
            self._send(self._began, self._ended)
        except Exception as error:  # noqa: BLE001 - whatever the library and the network raise
            logger.warning("the run's trace can't be sent: %s", error, extra={"run": self._began.run_id})

    def _send(self, began: RunBegan, ended: RunEnded) -> None:
        trace, sdk = self._library
        resource = sdk.Resource.create({"service.name": "distcommit", "distcommit.job": printable(began.job)})
        provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = sdk.OTLPSpanExporter(endpoint=self._url, timeout=_EXPORT_S)
        provider.add_span_processor(sdk.BatchSpanProcessor(exporter, max_queue_size=2 * MOST_SPANS))
        tracer, lanes = provider.get_tracer("distcommit"), self._lanes(began)

        def span(name: str, began_ms: int, ended_ms: int, inside: Any = None, **attributes: Any) -> Any:
            context = trace.set_span_in_context(inside) if inside is not None else None
            named = {f"distcommit.{key}": value for key, value in attributes.items()}
            found = tracer.start_span(name, context, start_time=began_ms * _NS, attributes=named)
            found.end(max(began_ms, ended_ms) * _NS)
            return found

        whole = tracer.start_span(
            printable(began.command.partition(" ")[0]),
            start_time=began.at_ms * _NS,
            attributes={
                "distcommit.run_id": began.run_id,
                "distcommit.epoch": began.epoch,
                "distcommit.command": printable(began.command),
                "distcommit.outcome": ended.outcome.value,
            },
        )
        if ended.outcome is not RunOutcome.SUCCEEDED:
            whole.set_status(trace.Status(trace.StatusCode.ERROR, printable(ended.reason or ended.outcome.value)))
        phases = {
            phase.phase: span(
                phase.phase,
                phase.at_ms,
                phase.at_ms + round(1000 * sum(each.seconds for each in self._ends if each.phase == phase.phase)),
                whole,
            )
            for phase in self._begins
        }
        left = MOST_SPANS - len(lanes) - len(phases)
        for lane in lanes:
            task = span(
                f"task {lane.name}",
                lane.began_ms,
                lane.ended_ms,
                phases.get(lane.phase, whole),
                host=printable(lane.host),
                records=lane.records,
                bytes_read=lane.bytes_read,
                datasets=lane.datasets,
                failed=lane.failed,
            )
            for name, began_ms, ended_ms in _longest(lane, left // len(lanes)):
                span(name, began_ms, ended_ms, task)
        whole.end(ended.at_ms * _NS)
        provider.shutdown()

    def _lanes(self, began: RunBegan) -> Sequence[Lane]:
        """Return the busiest tasks with readable records."""
        attempts: list[Attempt] = []
        tasks: list[TaskRows] = []
        try:
            read_run(self._store, began.epoch, SystemClock(), attempts.append, tasks.append)
        except (DistcommitError, OSError) as error:
            logger.warning("the run's trace has no tasks: %s", error, extra={"run": began.run_id})
            return ()
        return sorted(lanes_of(attempts, tasks), key=lambda lane: -lane.busy_ms)[:_MOST_TASKS]


def _longest(lane: Lane, most: int) -> Iterable[tuple[str, int, int]]:
    found = [*(("read", *each) for each in lane.reads), *(("commit", *each) for each in lane.commits)]
    return sorted(sorted(found, key=lambda each: each[1] - each[2])[:most], key=lambda each: each[1])


class _Sdk:
    """The parts of OpenTelemetry's SDK that are used."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra

        self.Resource, self.TracerProvider = Resource, TracerProvider
        self.BatchSpanProcessor, self.OTLPSpanExporter = BatchSpanProcessor, OTLPSpanExporter


def _library() -> tuple[Any, Any]:
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra

        return trace, _Sdk()
    except ImportError as error:
        raise ConfigurationError(
            "traces need OpenTelemetry",
            id="PACKAGE_MISSING",
            found=str(error),
            todo="pip install 'distcommit[opentelemetry]'",
        ) from error
