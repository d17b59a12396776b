"""A row of the table of inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Case:
    """An input, its right value, and the code that checks it.

    Exactly one of `run` and `test` is set: `run` if the input needs neither Spark nor a server, otherwise `test`.
    """

    point: str
    """The kind of fault, such as `inferred-json` or `csv`: the name of the part that takes the input."""
    given: str
    """The input, as a reader would write it down: at most 120 characters."""
    right: str
    """The right value, or `rejected: ` and the reason, exactly as `run` returns it."""
    run: Callable[[Path], str] | None = None
    """Passes the input through the product, with an empty folder to work in, and returns the observed value."""
    test: str | None = None
    """Id of the test that shows it, such as `tests/integration/test_x.py::test_y`, parameters left out."""

    def __post_init__(self) -> None:
        if (self.run is None) == (self.test is None):
            raise ValueError(f"case {self.point} {self.given!r}: exactly one of run and test must be set")
