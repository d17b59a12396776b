"""The endpoint of a service that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.app.telemetry.metrics import Metrics, label, require_client
from distcommit.app.telemetry.service_events import EventSink, ServiceEvent
from distcommit.core.errors import ConfigurationError


class ServiceMetrics:
    """Metrics of a service: of its runs and its events."""

    def __init__(self) -> None:
        client = require_client()
        self.registry = client.CollectorRegistry()
        self.of_runs = Metrics(self.registry, totals=True)
        self._events = client.Counter(
            "service_events",
            "Events of the service, by job file, as on stdout.",
            ["file", "event"],
            namespace="distcommit",
            registry=self.registry,
        )
        client.ProcessCollector(registry=self.registry)

    def counting(self, report: EventSink) -> EventSink:
        """Return a function that counts events and passes them on."""

        def count(event: ServiceEvent) -> None:
            self._events.labels(label(event.job), label(event.event)).inc()
            report(event)

        return count


@contextmanager
def scraped(at: tuple[str, int] | None) -> Iterator[ServiceMetrics | None]:
    """Serve metrics at this address and port within the block; None if no address is given.

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
            todo="name a free port",
        ) from error
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
