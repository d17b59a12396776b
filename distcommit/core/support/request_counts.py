"""How many requests this process has made of file systems."""

from __future__ import annotations


class Requests:
    """`made`: so far. Threads may count at a time: one more or less says nothing."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = 0


REQUESTS = Requests()
"""Of this process: whoever wants to know what something cost takes the difference."""
