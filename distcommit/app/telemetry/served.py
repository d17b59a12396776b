"""What a service tells of itself."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Served(msgspec.Struct, frozen=True):
    """Something that a service has done or found. `what`: in a word; `job`: the name of its file, empty if it is about
    all; `epoch`: of the run that it is about, else 0."""

    at_ms: int
    job: str
    what: str
    text: str = ""
    epoch: int = 0


Tell = Callable[[Served], None]
