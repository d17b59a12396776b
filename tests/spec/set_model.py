"""Executable model of watermarks that an operator sets: the records that the audit requires, one by one.

The model has one dataset with one partition of one source. A source has incarnations, each of which counts records from
0. The model keeps the set of records that must be in the output. It has neither origins nor skipped ranges: the
product's fold must imply the same set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["run", "set", "forget", "recreate", "quarantine", "abandon", "retry", "accept", "expire", "rebucket"]


@dataclass(frozen=True, slots=True)
class Act:
    """An act of a run or an operator.

    `run` reads up to `at`, and begins at `begins` if there is no watermark. `set` moves the watermark to `at`; `forget`
    sets it to null; `recreate` recreates the source. `quarantine` is a run that reads up to `at` and dies in its
    commit, and whose sequence an operator quarantines. `abandon`, `retry` and `accept` release that sequence; `retry`
    includes the run that replays it. The records in `published` of an accepted sequence are in the output. `retain`
    deletes old records on purpose, and `rebucket` moves the job to another number of buckets. Neither changes the
    required records.
    """

    kind: Kind
    at: int = 0
    begins: int = 0
    published: frozenset[int] = frozenset()


@dataclass(slots=True)
class SetModel:
    """The model's state.

    `owed`: the records of `incarnation` that must be published. `watermark`: None after it was forgotten. `reached`:
    its value before that. `there`: the present incarnation of the source. `passed`: the records that an operator
    skipped; the product counts those that were published before as skipped, too. `held`: the records of a quarantined
    sequence. Until its release the dataset is neither read nor set.
    """

    watermark: int | None = None
    reached: int | None = None
    incarnation: int = 0
    there: int = 0
    owed: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)
    held: range | None = None

    def do(self, act: Act) -> bool:
        """Carry out an act. Return False if it is rejected."""
        if act.kind in ("abandon", "retry", "accept"):
            return self._release(act)
        if self.held is not None and act.kind not in ("recreate", "expire"):
            return False
        match act.kind:
            case "recreate":
                self.there += 1
            case "quarantine":
                if self.watermark is None or self.there != self.incarnation or act.at <= self.watermark:
                    return False
                self.held = range(self.watermark, act.at)
            case "forget":
                self.reached, self.watermark = self.reached if self.watermark is None else self.watermark, None
            case "set":
                if self.watermark is None and self.there != self.incarnation:
                    self._begin_again()
                self._go_to(act.at)
            case "run":
                if self.watermark is not None and self.there != self.incarnation:
                    return False
                if self.watermark is None:
                    if self.there != self.incarnation:
                        self._begin_again()
                    self._go_to(act.begins)
                low = self.watermark or 0
                self.owed |= set(range(low, max(low, act.at)))
                self.watermark = max(low, act.at)
        return True

    def _release(self, act: Act) -> bool:
        if self.held is None:
            return False
        if act.kind != "abandon":
            published = set(self.held) if act.kind == "retry" else set(act.published)
            self.owed |= published
            self.passed |= set(self.held) - published
            self.watermark = self.held.stop
        self.held = None
        return True

    def _begin_again(self) -> None:
        self.incarnation, self.owed, self.reached, self.passed = self.there, set(), None, set()

    def _go_to(self, at: int) -> None:
        """Move the watermark: records above it will be read again, and records that it passes are not required."""
        before = self.reached if self.watermark is None else self.watermark
        self.owed = {record for record in self.owed if record < at}
        self.passed = {record for record in self.passed if record < at}
        self.passed |= set(range(at if before is None else before, at))
        self.watermark = self.reached = at
