"""Building blocks of planted faults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.checkers.planting import Edit


class FaultClass(StrEnum):
    """Kind of mistake."""

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
    CHANGED_INFOS = "changed-infos"


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: a description, and the edits that cause it.

    `tests`: test files that must notice it, if the three checkers do not reach the code; otherwise none.
    """

    name: str
    kind: FaultClass
    what: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()


def fault(kind: FaultClass, name: str, what: str, *edits: tuple[str, ...], tests: tuple[str, ...] = ()) -> Planted:
    """Return a fault by its edits, each a module, a function in it, the original code and its replacement."""
    return Planted(name, kind, what, tuple(Edit(*edit) for edit in edits), tests)
