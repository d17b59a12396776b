"""What faults to be planted are made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.checkers.planting import Edit


class FaultClass(StrEnum):
    """What kind of slip it is."""

    SYNC = "sync"
    EPOCH = "epoch"
    VIEW = "view"
    NAME = "name"
    TRUNCATION = "truncation"
    ATTEMPT = "attempt"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: what is wrong with the product, and the edits that make it so."""

    name: str
    kind: FaultClass
    what: str
    edits: tuple[Edit, ...]


def fault(kind: FaultClass, name: str, what: str, *edits: tuple[str, ...]) -> Planted:
    """A fault by its edits, each a module, a function in it, what stands there and what is to stand there."""
    return Planted(name, kind, what, tuple(Edit(*edit) for edit in edits))
