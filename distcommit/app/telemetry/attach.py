"""The observers that a job file configures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distcommit.app.job_file.config import JobConfig
from distcommit.app.telemetry.lineage import Lineage
from distcommit.app.telemetry.logs import logged
from distcommit.app.telemetry.metrics import MetricsFile
from distcommit.app.telemetry.traces import Traces
from distcommit.engine.events import Observer
from distcommit.stores.state.job_store import JobStore


@contextmanager
def observers(config: JobConfig, store: JobStore) -> Iterator[Sequence[Observer]]:
    """Yield the observers of a run. Data about an ended run is sent when the block ends, after its record is stored.

    Raises:
        ConfigurationError: if a library is not installed, or the log file can't be opened.
    """
    asked, found = config.telemetry, list[Observer]()
    with ExitStack() as stack:
        if asked.metrics_file:
            found.append(MetricsFile(Path(asked.metrics_file)))
        if asked.traces_url:
            traces = Traces(store, asked.traces_url)
            stack.callback(traces.close)
            found.append(traces)
        if asked.lineage_url or asked.lineage_file:
            lineage = Lineage(
                store, config, namespace=asked.lineage_namespace, url=asked.lineage_url, file=asked.lineage_file
            )
            stack.callback(lineage.close)
            found.append(lineage)
        if asked.log_file:
            found.append(stack.enter_context(logged(asked.log_file)))
        yield found
