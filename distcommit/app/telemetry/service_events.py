"""The events of a service."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class ServiceEvent(msgspec.Struct, frozen=True):
    """An event of a service, such as the end of a run.

    Attributes:
        at_ms: time in milliseconds since 1970.
        job: name of the job file; empty if the event concerns all jobs.
        event: type of the event in one word.
        text: details of the event; empty for an event without details.
        epoch: epoch of the run that the event concerns; 0 without a run.
    """

    at_ms: int
    job: str
    event: str
    text: str = ""
    epoch: int = 0


EventSink = Callable[[ServiceEvent], None]
