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
    LATER_EPOCH = "later-epoch"
    BRANCH = "branch"
    GROUP = "group"
    MAINTENANCE = "maintenance"
    INCARNATION = "incarnation"
    READER = "reader"
    OPERATOR = "operator"
    LEASE = "lease"
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: what is wrong with the product, and the edits that make it so.

    `tests`: files of tests that are to notice it, where the three checkers do not come to the code; else none.
    """

    name: str
    kind: FaultClass
    what: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()


def fault(kind: FaultClass, name: str, what: str, *edits: tuple[str, ...], tests: tuple[str, ...] = ()) -> Planted:
    """A fault by its edits, each a module, a function in it, what stands there and what is to stand there."""
    return Planted(name, kind, what, tuple(Edit(*edit) for edit in edits), tests)
