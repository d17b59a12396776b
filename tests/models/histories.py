"""The events that a job's history is made of: what a source gains, what runs meet, and what persons do between them."""

from __future__ import annotations

from dataclasses import dataclass

from distcommit.protocol.readiness import CommitPolicy
from tests.models.job_model import Release


@dataclass(frozen=True, slots=True)
class Grow:
    """A partition of a dataset gains records; both come into being if they are new."""

    dataset_urn: str
    partition: str
    records: int


@dataclass(frozen=True, slots=True)
class Crash:
    """The process dies before its `nth` mutating call (of that kind, at such a path), and never comes to it if there
    are fewer. `power_loss`: 0 is a kill, else which of the states that a power loss may leave."""

    nth: int
    kind: str = ""
    path: str = ""
    power_loss: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the job, with what its source and its machine do to it.

    Attributes:
        policy, job_level: how it is configured.
        units: work units per partition.
        short: records at the end of each work unit that it does not read.
        fails: (dataset, partition) that can't be read.
        stumbles: the same, of which only the record in the middle can't be.
        hidden: datasets that the source does not show this time.
        repeats: how often each work unit fails before it is read; below two, the task tries again by itself.
        twins: whether every ingest task runs twice.
        blocked: a dataset whose files can't be renamed this time; empty for none.
        crash: where it dies, if it does.
    """

    policy: CommitPolicy = CommitPolicy.FULL
    job_level: bool = False
    units: int = 1
    short: int = 0
    fails: frozenset[tuple[str, str]] = frozenset()
    stumbles: frozenset[tuple[str, str]] = frozenset()
    hidden: frozenset[str] = frozenset()
    repeats: int = 0
    twins: bool = False
    blocked: str = ""
    crash: Crash | None = None


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A run is paused before its `nth` mutating call; `by`, a whole run, comes and ends; then the first goes on."""

    run: Run
    nth: int
    by: Run


@dataclass(frozen=True, slots=True)
class Zombie:
    """Tasks of the run `back` runs ago (1 is the last) come once more, reading further or less far than before."""

    back: int
    short: int = 0
    drains: bool = True


@dataclass(frozen=True, slots=True)
class Lose:
    """Somebody takes away one staged file that a sealed sequence of the dataset still needs."""

    dataset_urn: str


@dataclass(frozen=True, slots=True)
class Restore:
    """All files taken away come back, with their bytes."""


@dataclass(frozen=True, slots=True)
class Released:
    """A person releases a quarantined dataset; the command may die before its `nth` mutating call (0: it does not)."""

    dataset_urn: str
    how: Release
    dies_before: int = 0


@dataclass(frozen=True, slots=True)
class Set:
    """A person sets an idle dataset's watermark to that part of what the source has, in tenths; None forgets it."""

    dataset_urn: str
    tenths: int | None


Event = Grow | Run | Overtaken | Zombie | Lose | Restore | Released | Set
