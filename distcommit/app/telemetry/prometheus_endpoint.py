"""The HTTP endpoint of a service for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.app.telemetry.metrics import Metrics, label, require_client
from distcommit.app.telemetry.service_events import EventSink, ServiceEvent
from distcommit.core.errors import ConfigurationError


class ServiceMetrics:
    """Metrics of a service's runs and events."""

    def __init__(self) -> None:
        client = require_client()
        self.registry = client.CollectorRegistry()
        self.of_runs = Metrics(self.registry, totals=True)
        self._events = client.Counter(
            "service_events",
            "Events of a service by job file, as on stdout: began, committed, failed, held, overlong, ...",
            ["file", "event"],
            namespace="distcommit",
            registry=self.registry,
        )
        client.ProcessCollector(registry=self.registry)

    def counting(self, report: EventSink) -> EventSink:
        """Return a function that counts each event and passes it to `report`."""

        def count(event: ServiceEvent) -> None:
            self._events.labels(label(event.job), label(event.event)).inc()
            report(event)

        return count


@contextmanager
def scraped(at: tuple[str, int] | None) -> Iterator[ServiceMetrics | None]:
    """Serve metrics over HTTP until the block ends. Without an address, yield None.

    Raises:
        ConfigurationError: if the address can't be bound, or Prometheus's client is not installed.
    """
    if at is None:
        yield None
        return
    metrics = ServiceMetrics()
    try:
        server, thread = require_client().start_http_server(at[1], at[0], metrics.registry)
    except OSError as error:
        raise ConfigurationError(
            "metrics can't be served at this address",
            id="ARGUMENT_INVALID",
            address=f"{at[0]}:{at[1]}",
            found=str(error),
            todo="set --metrics to a free port at an address of this machine",
        ) from error
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
