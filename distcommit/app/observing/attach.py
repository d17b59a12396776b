"""The observers that a job file asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from distcommit.app.observing.settings import ObservingSettings
from distcommit.engine.events import Observer


@contextmanager
def observers(settings: ObservingSettings) -> Iterator[Sequence[Observer]]:
    """Who is to be told of a run, as long as the block lasts.

    Raises:
        ConfigurationError: if what it takes is not installed.
    """
    found: list[Observer] = []
    if settings.metrics_file:
        from distcommit.app.observing.metrics import MetricsFile  # noqa: PLC0415 - an extra

        found.append(MetricsFile(Path(settings.metrics_file)))
    yield found
