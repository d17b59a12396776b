"""OpenLineage events at the beginning and the end of a run, with the datasets that the run read and published."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from distcommit.app.job_file.job_config import JobConfig
from distcommit.core.errors import ConfigurationError, DistcommitError, printable
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.support.install_command import install_command
from distcommit.engine.run_events import Event, RunBegan, RunEnded
from distcommit.stores.history.run_table import PUBLISHED_OUTCOMES, DatasetOutcome, TableRow, read_run_table
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

MOST_DATASETS = 1_000
"""Maximum number of datasets in one event."""
_PUBLISHED = PUBLISHED_OUTCOMES | {DatasetOutcome.REPLAYED}
_WAIT_S = 5.0
_STATES = {
    RunOutcome.SUCCEEDED: "COMPLETE",
    RunOutcome.INCOMPLETE: "COMPLETE",
    RunOutcome.HELD_BACK: "FAIL",
    RunOutcome.FENCED: "ABORT",
    RunOutcome.INTERRUPTED: "ABORT",
    RunOutcome.FAILED: "FAIL",
}


class Name(NamedTuple):
    """A dataset's identity in OpenLineage.

    Attributes:
        namespace: location of the source or target, as OpenLineage's naming rules form it.
        name: the dataset's name in that namespace.
    """

    namespace: str
    name: str


def source_of(config: JobConfig) -> Callable[[str], Name]:
    """Return a function from a dataset's URN to the name of its source.

    The name consists of the source's location and table. A source without a location is named by its type.
    """
    source = config.source

    def named(urn: str) -> Name:
        extract = source.extract_of(urn)
        if source.location and extract is not None:
            return Name(source.location, extract.table)
        if extract is None or extract.namespace == source.type:
            return Name(source.type, urn)
        return Name(source.type, f"{extract.namespace}.{extract.table}")

    return named


def targets_of(config: JobConfig) -> Callable[[str], list[Name]]:
    """Return a function from a dataset's URN to the names of its targets, one for each branch.

    Files are named by file system and folder, targets of other sinks by type and location.
    """
    output, branches = config.paths.output, config.task_flow().branches
    kinds = [settings.type for settings in config.sink_sections().values()]

    def named(urn: str) -> Iterator[Name]:
        for branch, kind in zip(branches, kinds, strict=True):
            location = branch.sink.published_in(urn, output, branch.name)
            if not branch.sink.abilities.files:
                yield Name(kind, location or urn)
                continue
            scheme, separator, remainder = location.partition("://")
            host, _, path = remainder.partition("/")
            yield Name(f"{scheme}://{host}", path) if separator else Name("file", location)

    return lambda urn: list(named(urn))


class Lineage:
    """Observer that sends an event when a run begins, and one after it has ended.

    Args:
        store: the job's store.
        config: the job's configuration.
        namespace: OpenLineage namespace of the job.
        url: URL of an OpenLineage server.
        file: file that receives events as JSON lines, if there is no URL.

    Raises:
        ConfigurationError: if OpenLineage's client is not installed.
    """

    def __init__(self, store: JobStore, config: JobConfig, *, namespace: str, url: str, file: str) -> None:
        self._store, self._config, self._namespace = store, config, namespace
        self._events, self._facets, client, transports = _library()
        if url:
            http = transports[0]
            transport = http[0](http[1](url=url, timeout=_WAIT_S, retry={"total": 1}))
        else:
            transport = transports[1][0](transports[1][1](log_file_path=file, append=True))
        self._client = client(transport=transport)
        self._began: RunBegan | None = None
        self._ended: RunEnded | None = None

    def observe(self, event: Event) -> None:
        match event:
            case RunBegan():
                self._began = event
                self._emit("START", event, event.at_ms)
            case RunEnded():
                self._ended = event

    def close(self) -> None:
        """Send the event of the run's end. A failure is only logged."""
        if self._began is not None and self._ended is not None:
            self._emit(_STATES[self._ended.outcome], self._began, self._ended.at_ms, self._ended)

    def _emit(self, state: str, began: RunBegan, at_ms: int, ended: RunEnded | None = None) -> None:
        try:
            self._client.emit(self._event(state, began, at_ms, ended))
        except Exception as error:  # noqa: BLE001 - whatever the library and the network raise
            logger.warning("lineage can't be sent: %s", error, extra={"run": began.run_id})

    def _event(self, state: str, began: RunBegan, at_ms: int, ended: RunEnded | None) -> Any:
        events, facets = self._events, self._facets
        run_facets: dict[str, Any] = {}
        if ended is not None and ended.outcome is not RunOutcome.SUCCEEDED:
            message = printable(ended.reason) or f"{ended.outcome.value}: `distcommit status` shows more"
            run_facets["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(message, "python")
        rows = self._rows(began.run_id) if ended is not None else []
        source, targets = source_of(self._config), targets_of(self._config)
        inputs = dict.fromkeys(source(row.dataset) for row in rows)
        one = len(self._config.task_flow().branches) == 1
        outputs = [
            events.OutputDataset(
                printable(target.namespace),
                printable(target.name),
                outputFacets={
                    "outputStatistics": facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                        rowCount=row.counts.records_published, fileCount=row.counts.files_published
                    )
                }
                if one
                else {},
            )
            for row in rows
            for target in targets(row.dataset)
        ]
        return events.RunEvent(
            eventTime=datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(),
            producer="distcommit",
            run=events.Run(str(uuid.uuid5(uuid.NAMESPACE_URL, f"distcommit:{began.run_id}")), run_facets),
            job=events.Job(self._namespace, printable(began.job)),
            eventType=getattr(events.RunState, state),
            inputs=[events.InputDataset(printable(name.namespace), printable(name.name)) for name in inputs],
            outputs=outputs,
        )

    def _rows(self, run_id: str) -> list[TableRow]:
        published: dict[str, TableRow] = {}
        try:
            for rows in read_run_table(self._store.fs, self._store.roots.store, run_id):
                for row in rows.outcomes:
                    if row.outcome in _PUBLISHED and len(published) < MOST_DATASETS:
                        published.setdefault(row.dataset, row)
        except (DistcommitError, OSError) as error:
            logger.warning("lineage has no datasets: %s", error, extra={"run": run_id})
        return list(published.values())


def _library() -> tuple[Any, Any, Any, Any]:
    try:
        from openlineage.client import OpenLineageClient, event_v2, facet_v2  # noqa: PLC0415 - an extra
        from openlineage.client.transport.file import FileConfig, FileTransport  # noqa: PLC0415 - an extra
        from openlineage.client.transport.http import HttpConfig, HttpTransport  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "lineage needs OpenLineage's client",
            id="PACKAGE_MISSING",
            found=str(error),
            todo=f"run `{install_command('openlineage')}`",
        ) from error
    return event_v2, facet_v2, OpenLineageClient, ((HttpTransport, HttpConfig), (FileTransport, FileConfig))
