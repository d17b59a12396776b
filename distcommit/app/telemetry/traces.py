"""A run as an OpenTelemetry trace: the driver's phases, their tasks, and the reads and commits of each task.

The trace is created after the run, from its events and from times in the store. Executors do not need OpenTelemetry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from distcommit.app.inspection.recorded_runs import read_run
from distcommit.app.inspection.report_data.task_timelines import TaskTimeline, timelines_of
from distcommit.core.errors import ConfigurationError, DistcommitError, printable
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.support.install_command import install_command
from distcommit.engine.run_events import Event, PhaseBegan, PhaseEnded, RunBegan, RunEnded
from distcommit.engine.system_clock import SystemClock
from distcommit.stores.history.attempt_counts import Attempt
from distcommit.stores.history.run_table import TaskRows
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

MOST_SPANS = 1_500
"""Maximum number of spans in a trace: all phases, the busiest tasks, and their longest reads and commits."""
_MOST_TASKS = 200
_EXPORT_S = 10
_NS = 1_000_000
"""Nanoseconds in a millisecond."""


class Traces:
    """Observer that collects the events of a run, and sends a trace at the end.

    Args:
        store: the job's store.
        url: OTLP endpoint of an OpenTelemetry collector, such as `http://collector:4318/v1/traces`.

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
        """Send the trace of the ended run. A failure is only logged."""
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
        tracer, timelines = provider.get_tracer("distcommit"), self._task_timelines(began)

        def span(name: str, began_ms: int, ended_ms: int, inside: Any = None, **attributes: Any) -> Any:
            context = trace.set_span_in_context(inside) if inside is not None else None
            named = {f"distcommit.{key}": value for key, value in attributes.items()}
            result = tracer.start_span(name, context, start_time=began_ms * _NS, attributes=named)
            result.end(max(began_ms, ended_ms) * _NS)
            return result

        run_span = tracer.start_span(
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
            run_span.set_status(trace.Status(trace.StatusCode.ERROR, printable(ended.reason or ended.outcome.value)))
        phases = {
            phase.phase: span(
                phase.phase,
                phase.at_ms,
                phase.at_ms
                + round(
                    1000 * sum(phase_ended.seconds for phase_ended in self._ends if phase_ended.phase == phase.phase)
                ),
                run_span,
            )
            for phase in self._begins
        }
        spans_left = MOST_SPANS - len(timelines) - len(phases)
        for timeline in timelines:
            task = span(
                f"task {timeline.name}",
                timeline.began_ms,
                timeline.ended_ms,
                phases.get(timeline.phase, run_span),
                host=printable(timeline.host),
                records=timeline.records,
                bytes_read=timeline.bytes_read,
                datasets=timeline.datasets,
                failed=timeline.failed,
            )
            for name, began_ms, ended_ms in _longest(timeline, spans_left // len(timelines)):
                span(name, began_ms, ended_ms, task)
        run_span.end(ended.at_ms * _NS)
        provider.shutdown()

    def _task_timelines(self, began: RunBegan) -> Sequence[TaskTimeline]:
        attempts: list[Attempt] = []
        tasks: list[TaskRows] = []
        try:
            read_run(self._store, began.epoch, SystemClock(), attempts.append, tasks.append)
        except (DistcommitError, OSError) as error:
            logger.warning("the run's trace has no tasks: %s", error, extra={"run": began.run_id})
            return ()
        return sorted(timelines_of(attempts, tasks), key=lambda timeline: -timeline.busy_ms)[:_MOST_TASKS]


def _longest(timeline: TaskTimeline, most: int) -> Iterable[tuple[str, int, int]]:
    results = [*(("read", *item) for item in timeline.reads), *(("commit", *item) for item in timeline.commits)]
    return sorted(sorted(results, key=lambda item: item[1] - item[2])[:most], key=lambda item: item[1])


class _Sdk:
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
            todo=f"run `{install_command('opentelemetry')}`",
        ) from error
