"""Prometheus metrics: gauges of each job's newest run, and counters over all runs of a process."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcommit.core.errors import ConfigurationError, printable
from distcommit.core.records.freshness_targets import BEHIND
from distcommit.core.records.run_counts import COMMIT_COUNTS, MOST_COUNTERS, OTHER, FlowCounts, RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reason
from distcommit.core.support.install_command import install_command
from distcommit.engine.run_events import Event, PhaseEnded, Progressed, RunBegan, RunEnded

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)

MOST_NAMED = 100
"""Maximum number of datasets with their own series: unpublished ones, and ones that are behind their source."""
_TEXT = 200
_SUCCEEDED = "distcommit_last_success_timestamp_seconds"
_COUNTED = {
    "records_read": "Records that were read of sources.",
    "records_published": "Records that were published.",
    "records_rejected": "Records that were rejected to error branches.",
    "bytes_read": "Payload bytes that were read of sources.",
    "files_published": "Files that were published.",
    "datasets_planned": "Datasets with new records.",
    "datasets_published": "Datasets that were published as a whole.",
    "datasets_failed": "Datasets that could not be published.",
    "datasets_skipped": "Datasets that were not planned.",
    "datasets_quarantined": "Datasets that were quarantined.",
    "sequences_replayed": "Commits of older runs that were finished.",
    "sequences_postponed": "Commits that were left to the next run.",
    "steps_executed": "Commit steps that were executed.",
    "commit_attempts": "Commits that sinks were asked for, again each time.",
    "commit_successes": "Commits that sinks have made.",
    "commit_retries": "Commits that sinks could not make yet, and their own retries.",
    "commit_failures": "Commits that sinks can never make.",
    "commit_in_doubt": "Commits whose outcome at the target was unknown, or whose transaction was left prepared.",
    "target_ms": "Milliseconds of sinks at their targets, added up over tasks.",
    "positions_lost": "Positions that were given up.",
    "files_swept": "Files of crashed runs and lost attempts that were deleted.",
}
_COUNTED_BY_SINK = {
    "records_written": "Records that were given to writers, in all attempts.",
    "files_written": "Files that writers staged, in all attempts.",
    **{name: _COUNTED[name] for name in COMMIT_COUNTS},
}
_SINK = ["job", "branch", "sink"]


def label(text: object) -> str:
    """Return text as the value of a label, with control characters escaped."""
    return printable(f"{text}"[:_TEXT])


class Metrics:
    """The metrics of one process.

    Args:
        registry: Prometheus registry.
        totals: whether to add counters over all runs.

    Raises:
        ConfigurationError: if Prometheus's client is not installed.
    """

    def __init__(self, registry: CollectorRegistry, *, totals: bool) -> None:
        client = require_client()
        gauge, counter, histogram = client.Gauge, client.Counter, client.Histogram
        own = {"namespace": "distcommit", "registry": registry}
        self.epoch = gauge("last_run_epoch", "The number of the newest run.", ["job"], **own)
        self.began = gauge("last_run_start_timestamp_seconds", "When the newest run began.", ["job"], **own)
        self.ended = gauge("last_run_end_timestamp_seconds", "When the newest run that has ended did.", ["job"], **own)
        self.succeeded = gauge("last_success_timestamp_seconds", "When a run last succeeded.", ["job"], **own)
        self.outcome = gauge(
            "last_run_outcome", "1 for how the newest run that has ended did, else 0.", ["job", "outcome"], **own
        )
        self.phases = gauge("last_run_phase_seconds", "Seconds of its phases.", ["job", "phase"], **own)
        self.behind = gauge(
            "last_run_datasets_behind", "Datasets that were behind their freshness targets as it began.", ["job"], **own
        )
        self.troubles = gauge(
            "last_run_dataset_trouble",
            f"1 for a dataset that did not go through, or was behind its target; {MOST_NAMED} at most.",
            ["job", "dataset", "kind"],
            **own,
        )
        self.reasons_left_out = gauge(
            "last_run_problems_omitted", "How many more problems there were than are named.", ["job"], **own
        )
        self.last = {name: gauge(f"last_run_{name}", text, ["job"], **own) for name, text in _COUNTED.items()}
        self.running = gauge("running", "1 while a run is under way.", ["job"], **own)
        self.reading = gauge("run_records_read", "Records that the run under way has read so far.", ["job"], **own)
        self.totals = {name: counter(name, text, ["job"], **own) for name, text in _COUNTED.items()} if totals else {}
        self.last_of_sinks = {
            name: gauge(f"last_run_sink_{name}", text, _SINK, **own) for name, text in _COUNTED_BY_SINK.items()
        }
        self.totals_of_sinks = (
            {name: counter(f"sink_{name}", text, _SINK, **own) for name, text in _COUNTED_BY_SINK.items()}
            if totals
            else {}
        )
        text = "Counters that writers and committers of sinks increase themselves."
        self.last_own = gauge("last_run_sink_counter", text, [*_SINK, "counter"], **own)
        self.totals_own = counter("sink_counter", text, [*_SINK, "counter"], **own) if totals else None
        self._own_names: dict[tuple[str, ...], set[str]] = {}
        self.runs = counter("runs", "Runs by how they ended.", ["job", "outcome"], **own) if totals else None
        self.seconds = (
            histogram(
                "run_seconds",
                "How long runs took.",
                ["job"],
                buckets=(0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600),
                **own,
            )
            if totals
            else None
        )

    def observer(self) -> RunMetrics:
        return RunMetrics(self)

    def own_name(self, sink: tuple[str, ...], name: str) -> str:
        """Return `name` for a sink's own counter, or `other` if the sink has had too many other names in all runs."""
        names = self._own_names.setdefault(sink, set())
        if len(names) < MOST_COUNTERS:
            names.add(name)
        return name if name in names else OTHER


class RunMetrics:
    """Observer that sets the metrics of one run."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._job, self._began_ms = metrics, "", 0
        self._phases: list[PhaseEnded] = []

    def observe(self, event: Event) -> None:
        metrics = self._metrics
        match event:
            case RunBegan():
                self._job, self._began_ms = label(event.job), event.at_ms
                metrics.epoch.labels(self._job).set(event.epoch)
                metrics.began.labels(self._job).set(event.at_ms / 1000)
                metrics.running.labels(self._job).set(1)
                metrics.reading.labels(self._job).set(0)
            case Progressed():
                metrics.reading.labels(self._job).set(event.counts.records_read)
            case PhaseEnded():
                self._phases.append(event)
            case RunEnded():
                self._end(event)

    def _end(self, event: RunEnded) -> None:
        metrics, job = self._metrics, self._job
        metrics.running.labels(job).set(0)
        metrics.ended.labels(job).set(event.at_ms / 1000)
        if event.outcome is RunOutcome.SUCCEEDED:
            metrics.succeeded.labels(job).set(event.at_ms / 1000)
        for outcome in RunOutcome:
            metrics.outcome.labels(job, outcome.value).set(outcome is event.outcome)
        for phase in self._phases:
            metrics.phases.labels(job, phase.phase).set(phase.seconds)
        counts = event.totals or RunCounts.total(phase.counts for phase in self._phases)
        for name, gauge in metrics.last.items():
            gauge.labels(job).set(getattr(counts, name))
        for name, counter in metrics.totals.items():
            counter.labels(job).inc(max(0, getattr(counts, name)))
        self._set_sinks(counts.flow)
        if metrics.runs is not None and metrics.seconds is not None:
            metrics.runs.labels(job, event.outcome.value).inc()
            metrics.seconds.labels(job).observe(max(0, event.at_ms - self._began_ms) / 1000)
        self._set_problems()

    def _set_sinks(self, flow: FlowCounts) -> None:
        metrics, job = self._metrics, self._job
        for gauge in (*metrics.last_of_sinks.values(), metrics.last_own):
            gauge.remove_by_labels({"job": job})
        for counts in flow.sinks:
            names = job, label(counts.branch), label(counts.sink)
            for name, gauge in metrics.last_of_sinks.items():
                gauge.labels(*names).set(getattr(counts, name))
            for name, counter in metrics.totals_of_sinks.items():
                counter.labels(*names).inc(getattr(counts, name))
        for own in flow.counters:
            sink = job, label(own.branch), label(own.sink)
            own_names = *sink, metrics.own_name(sink, label(own.name))
            metrics.last_own.labels(*own_names).inc(own.count)
            if metrics.totals_own is not None:
                metrics.totals_own.labels(*own_names).inc(own.count)

    def _set_problems(self) -> None:
        metrics, job = self._metrics, self._job
        notes = [note for phase in self._phases for note in phase.notes if note.kind == BEHIND]
        reasons = [reason for phase in self._phases for reason in phase.reasons]
        metrics.troubles.remove_by_labels({"job": job})
        named = dict.fromkeys((label(each.subject), label(each.kind)) for each in _first(reasons, notes))
        for dataset, kind in named:
            metrics.troubles.labels(job, dataset, kind).set(1)
        more = sum(phase.reasons.omitted_count for phase in self._phases)
        metrics.reasons_left_out.labels(job).set(more + max(0, len(reasons) + len(notes) - MOST_NAMED))
        metrics.behind.labels(job).set(len(notes))


def _first(*parts: Iterable[Reason]) -> list[Reason]:
    return [reason for part in parts for reason in part][:MOST_NAMED]


class MetricsFile:
    """Observer that writes the run's metrics to a file when the run ends.

    The file is replaced atomically. The time of the last successful run is copied from the old file; 0 if there is
    none.

    Args:
        path: the file, in Prometheus's text format.

    Raises:
        ConfigurationError: if Prometheus's client is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._registry, self._job = path, require_client().CollectorRegistry(), ""
        self._metrics = Metrics(self._registry, totals=False)
        self._observer = self._metrics.observer()

    def observe(self, event: Event) -> None:
        self._observer.observe(event)
        if isinstance(event, RunBegan):
            self._job = label(event.job)
        if isinstance(event, RunEnded):
            if event.outcome is not RunOutcome.SUCCEEDED:
                self._metrics.succeeded.labels(self._job).set(self._succeeded_s())
            try:
                require_client().write_to_textfile(str(self._path), self._registry)
            except OSError as error:
                logger.warning("the run's metrics can't be written: %s", error)

    def _succeeded_s(self) -> float:
        """Return the time of the last successful run from the old file, in seconds since 1970."""
        from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - an extra

        try:
            families = [*text_string_to_metric_families(self._path.read_text(encoding="utf-8"))]
        except (OSError, ValueError):  # there is no such file yet, or it is foreign
            return 0
        samples = (sample for family in families for sample in family.samples)
        own = (item.value for item in samples if item.name == _SUCCEEDED and item.labels == {"job": self._job})
        return next(own, 0)


def require_client() -> Any:
    """Return the module of Prometheus's client. Raises ConfigurationError if it is not installed."""
    try:
        import prometheus_client  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "metrics need Prometheus's client",
            id="PACKAGE_MISSING",
            found=str(error),
            todo=f"run `{install_command('prometheus')}`",
        ) from error
    return prometheus_client
