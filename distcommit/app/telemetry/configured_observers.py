"""Creates the observers that a job file configures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.telemetry.lineage import Lineage
from distcommit.app.telemetry.logs import logged
from distcommit.app.telemetry.metrics import MetricsFile
from distcommit.app.telemetry.traces import Traces
from distcommit.engine.run_events import Observer
from distcommit.stores.state.job_store import JobStore


@contextmanager
def observers(config: JobConfig, store: JobStore) -> Iterator[Sequence[Observer]]:
    """Yield the run's observers. Data that needs the run's record, such as a trace, is sent when the block ends.

    Raises:
        ConfigurationError: if a library is not installed, or the log file can't be opened.
    """
    settings, attached = config.telemetry, list[Observer]()
    with ExitStack() as stack:
        if settings.metrics_file:
            attached.append(MetricsFile(Path(settings.metrics_file)))
        if settings.traces_url:
            traces = Traces(store, settings.traces_url)
            stack.callback(traces.close)
            attached.append(traces)
        if settings.lineage_url or settings.lineage_file:
            lineage = Lineage(
                store,
                config,
                namespace=settings.lineage_namespace,
                url=settings.lineage_url,
                file=settings.lineage_file,
            )
            stack.callback(lineage.close)
            attached.append(lineage)
        if settings.log_file:
            attached.append(stack.enter_context(logged(settings.log_file)))
        yield attached
