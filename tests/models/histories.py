"""The events of a job's history: changes of the source, faults of runs, and operator actions between them."""

from __future__ import annotations

from dataclasses import dataclass

from distcommit.protocol.seal_decision import CommitPolicy
from tests.models.job_model import Release


@dataclass(frozen=True, slots=True)
class Grow:
    """A partition of a dataset gains records; both are created if they are new."""

    dataset_urn: str
    partition: str
    records: int


@dataclass(frozen=True, slots=True)
class Crash:
    """The process dies before its `nth` mutating call (of that kind, at such a path), if there are that many.

    `power_loss`: 0 is a kill, otherwise one of the states that a power loss may leave.
    """

    nth: int
    kind: str = ""
    path: str = ""
    power_loss: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the job, with the faults of its source and its machine.

    Attributes:
        policy, job_level: its configuration.
        units: work units per partition.
        short: records at the end of each work unit that it does not read.
        fails: (dataset, partition) that cannot be read.
        stumbles: (dataset, partition) of which only the middle record cannot be read.
        hidden: datasets that the source does not show this time.
        repeats: how often each work unit fails before it is read; below two, the task retries by itself.
        twins: whether every ingest task runs twice.
        blocked: a dataset whose files cannot be renamed this time; empty for none.
        crash: the place where it dies, if it does.
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
    """A run is paused before its `nth` mutating call; `by`, a whole run, comes and ends; then the first continues."""

    run: Run
    nth: int
    by: Run


@dataclass(frozen=True, slots=True)
class Zombie:
    """Tasks of the run `back` runs ago (1 is the last) come again, and read further or less far than before."""

    back: int
    short: int = 0
    drains: bool = True


@dataclass(frozen=True, slots=True)
class Lose:
    """One staged file that a sealed sequence of the dataset still needs is lost."""

    dataset_urn: str


@dataclass(frozen=True, slots=True)
class Restore:
    """All lost files return, with their bytes."""


@dataclass(frozen=True, slots=True)
class Released:
    """An operator releases a quarantined dataset; the command may die before its `nth` mutating call (0: it does
    not)."""

    dataset_urn: str
    how: Release
    dies_before: int = 0


@dataclass(frozen=True, slots=True)
class Set:
    """An operator sets an idle dataset's watermark to that part of the source's records, in tenths; None deletes it."""

    dataset_urn: str
    tenths: int | None


Event = Grow | Run | Overtaken | Zombie | Lose | Restore | Released | Set
