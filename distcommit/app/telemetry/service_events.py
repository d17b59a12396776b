"""The events of a service."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class ServiceEvent(msgspec.Struct, frozen=True):
    """An event of a service."""

    at_ms: int
    job: str
    """The name of the job's file; empty if it is about all."""
    event: str
    """In a word."""
    text: str = ""
    epoch: int = 0
    """Of the run that it is about, or 0."""


EventSink = Callable[[ServiceEvent], None]
