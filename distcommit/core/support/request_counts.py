"""Count of the file system requests of this process."""

from __future__ import annotations


class Requests:
    """A counter. Concurrent threads may lose single counts.

    Attributes:
        made: the number of requests so far.
    """

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = 0


REQUESTS = Requests()
"""The process's counter. The difference of two readings is the number of requests between them."""
