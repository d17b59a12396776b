"""The events of a service."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class ServiceEvent(msgspec.Struct, frozen=True):
    """An event of a service, such as the end of a run."""

    at_ms: int
    job: str
    """Name of the job file; empty if the event concerns all jobs."""
    event: str
    """Type of the event in one word."""
    text: str = ""
    epoch: int = 0
    """Epoch of the run that the event concerns; 0 if there is none."""


EventSink = Callable[[ServiceEvent], None]
