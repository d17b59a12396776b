"""Abandoning a dataset that goes to files, a table and messages (which can't be revoked), as in the model
`tests/spec/abandon_model.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from distcommit.constructs.forks.by_schema import AllBranches
from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import Abilities, Sink
from distcommit.engine.driver.run import RunResult, run
from distcommit.pipeline.task_flow import Branch, TaskFlow
from distcommit.sinks.base import idempotent_commit
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.world import World
from tests.unit.engine.driver.machines import OUTPUT, Fault, Machine, Meeting, launch, source, statuses
from tests.unit.engine.driver.test_custom_sinks import MemorySink

WORLD = World(max_attempts=1)
DATA = source(a=2)
VALUES = ["a/0/0", "a/0/1"]


@dataclass
class LedgerSink(MemorySink):
    """A sink with rows by epoch and a ledger. `before` is called before each committer call, for faults. Rows that are
    `compacted` can't be revoked.
    """

    compacted: bool = False
    row: LedgerRow | None = None
    down: bool = False
    before: Callable[[], None] = lambda: None

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return LedgerCommitter(self)

    @property
    def values(self) -> list[str]:
        """Return the visible values."""
        return self.rows.get("a", [])


@dataclass
class Table(LedgerSink):
    name: ClassVar[str] = "table"


@dataclass
class Messages(LedgerSink):
    name: ClassVar[str] = "messages"
    abilities: ClassVar[Abilities] = Abilities(can_roll_back=False)
    compacted: bool = True


@dataclass
class LedgerCommitter(SinkCommitter):
    sink: LedgerSink

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self.sink.before()
        return [self._commit(request) for request in requests]

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        self.sink.before()
        for request in requests:
            row = idempotent_commit.taken_back(self.sink.row, request, ())
            if self.sink.ledger.get(("a", request.epoch)):
                if self.sink.compacted:
                    raise ConflictError("what is committed stays", dataset="a")
                del self.sink.ledger["a", request.epoch]
            self.sink.row = row

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        self.sink.before()
        for request in requests:
            self.sink.row = idempotent_commit.allowed_again(self.sink.row, request)

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        if self.sink.down:
            return RetryLater("not now")
        outcome = idempotent_commit.answered(self.sink.row, request)
        if outcome is None:
            self.sink.row = idempotent_commit.committed(self.sink.row, request, ())
            self.sink.ledger["a", request.epoch] = request.infos
        return outcome or Committed()


@dataclass
class Job:
    """A job with three branches on one machine."""

    machine: Machine = field(default_factory=Machine)
    table: Table = field(default_factory=Table)
    messages: Messages = field(default_factory=Messages)

    def run(self) -> RunResult:
        """Run the job once."""
        files: Sink = FileSink(compression="none")
        branches = Branch(self.messages, "messages"), Branch(self.table, "table"), Branch(files, "files")
        settings = WORLD.begin(self.machine, DATA)
        flow = TaskFlow(settings.flow.source, branches, fork=AllBranches())
        return run(launch, replace(settings, flow=flow, min_interval_s=1_000_000))

    def half_done(self) -> None:
        """Return a job that is quarantined with its files and table rows published and no message."""
        self.messages.down = True
        self.run()
        self.run()
        self.messages.down = False
        assert statuses(WORLD, self.machine) == {"a": "quarantined"}
        assert (self.table.values, self.messages.values) == (VALUES, [])

    def abandon(self) -> None:
        """Abandon the dataset as an operator would."""
        operator_actions.abandon(
            WORLD.store(self.machine), "a", "somebody", {**self.table.committers, **self.messages.committers}
        )

    def files(self) -> dict[str, bytes]:
        """Return the published files."""
        return self.machine.paths(f"{OUTPUT}/a")

    def disturbed_by(self, fault: Fault) -> None:
        """Apply a fault before each call of the machine and of the targets."""
        self.machine.faults.append(fault)

        def before() -> None:
            for one in list(self.machine.faults):
                one(Operation("target", ""))

        self.table.before = self.messages.before = before

    def calm(self) -> None:
        self.machine.restart()
        self.table.before = self.messages.before = lambda: None

    def check_exact(self) -> None:
        """Run without faults and check that each target has each record once."""
        result = self.run()
        assert (result.succeeded, statuses(WORLD, self.machine)) == (True, {"a": "idle"}), result
        assert (self.table.values, self.messages.values) == (VALUES, VALUES)
        assert len(self.files()) == 1


def calls() -> tuple[list[int], Fault]:
    """Count the mutating calls."""
    observed = [0]

    def count(operation: Operation) -> None:
        observed[0] += operation.kind not in ("read", "lstat", "scandir")

    return observed, count


def dies_before(number: int) -> Fault:
    observed, count = calls()

    def fault(operation: Operation) -> None:
        count(operation)
        if observed[0] > number:
            raise Crashed

    return fault


def test_half_committed_dataset_is_abandoned_from_the_last_target_to_the_first() -> None:
    job = Job()
    job.half_done()
    job.abandon()
    assert (job.table.values, job.messages.values, job.files()) == ([], [], {})
    assert job.messages.row is not None
    assert job.messages.row.revoked == 2
    job.check_exact()


def test_refusal_by_one_target_removes_nothing_and_a_retry_succeeds() -> None:
    job = Job()
    job.half_done()
    job.table.compacted, before = True, job.files()
    for _ in range(2):
        with pytest.raises(ConflictError, match="what is committed stays"):
            job.abandon()
        assert statuses(WORLD, job.machine) == {"a": "quarantined"}
        assert (job.table.values, job.messages.values, job.files()) == (VALUES, [], before)
    operator_actions.retry(WORLD.store(job.machine), "a", "somebody")
    job.check_exact()


def test_earlier_abandon_stays_in_effect_when_a_later_one_is_allowed_again() -> None:
    job = Job()
    job.half_done()
    job.abandon()
    job.half_done()
    job.table.compacted = True
    with pytest.raises(ConflictError):
        job.abandon()
    zombie = CommitRequest("a", 2, ({"values": VALUES},), branch="messages", bases=(0,))
    (outcome,) = LedgerCommitter(job.messages).commit([zombie])
    assert isinstance(outcome, FailedForGood)
    assert job.messages.values == []
    operator_actions.retry(WORLD.store(job.machine), "a", "somebody")
    job.check_exact()


@pytest.mark.thorough
@pytest.mark.parametrize("compacted", [False, True])
def test_abandon_killed_at_any_call_resumes_or_leaves_the_earlier_state(compacted: bool) -> None:
    for number in range(200):
        job = Job()
        job.half_done()
        job.table.compacted = compacted
        job.disturbed_by(dies_before(number))
        died = False
        try:
            with suppress(ConflictError):
                job.abandon()
        except Crashed:
            died = True
        job.calm()
        assert compacted is False or job.table.values == VALUES, number
        if statuses(WORLD, job.machine)["a"] in ("quarantined", "revoking"):
            with suppress(ConflictError):
                job.abandon()
        if compacted:
            operator_actions.retry(WORLD.store(job.machine), "a", "somebody")
        job.check_exact()
        if not died:
            break
    assert number > 4


@pytest.mark.thorough
@pytest.mark.parametrize("compacted", [False, True])
def test_zombie_at_any_call_of_an_abandon_does_no_harm(compacted: bool) -> None:
    """Between any two calls of an overtaken run a newer run fails, an operator abandons and a third run reads again; or
    the table refuses and the operator retries.
    """
    met = 0
    for number in range(400):
        job = Job()
        WORLD.store(job.machine)

        def act(job: Job = job) -> bool:
            quiet, job.table.before = job.table.before, lambda: None
            job.messages.before = job.table.before
            job.messages.down = True
            job.run()
            job.run()
            job.messages.down, job.table.compacted = False, compacted
            if statuses(WORLD, job.machine).get("a") == "quarantined":
                with suppress(ConflictError):
                    job.abandon()
            if statuses(WORLD, job.machine).get("a") == "quarantined":
                operator_actions.retry(WORLD.store(job.machine), "a", "somebody")
            job.table.before = job.messages.before = quiet
            return True

        newer = Meeting(job.machine, number, act)
        job.disturbed_by(newer)
        with suppress(Exception):  # the run is fenced
            job.run()
        job.calm()
        if newer.result is None:
            break
        met += 1
        job.run()
        job.check_exact()
    assert met > 30


@pytest.mark.thorough
@pytest.mark.parametrize("compacted", [False, True])
def test_zombie_that_commits_at_any_call_of_an_abandon_does_no_harm(compacted: bool) -> None:
    """An overtaken run continues to its end between any two calls of the operator's command."""
    for number in range(200):
        job = Job()
        job.half_done()
        job.table.compacted = compacted
        store = WORLD.store(job.machine)
        steps = store.bucket_log(0).refresh().state_of("a").sequence
        assert steps is not None

        def zombie(job: Job = job, epoch: int = steps.epoch) -> bool:
            quiet, job.table.before = job.table.before, lambda: None
            job.messages.before = job.table.before
            for sink in (job.table, job.messages):
                request = CommitRequest("a", epoch, ({"values": VALUES},), bases=(0,))
                (outcome,) = LedgerCommitter(sink).commit([request])
                if not isinstance(outcome, Committed) and sink.values != VALUES:
                    break
            job.table.before = job.messages.before = quiet
            return True

        met = Meeting(job.machine, number, zombie)
        job.disturbed_by(met)
        with suppress(ConflictError):
            job.abandon()
        job.calm()
        if met.result is None:
            break
        if statuses(WORLD, job.machine)["a"] == "quarantined":
            operator_actions.retry(store, "a", "somebody")
        job.check_exact()
    assert number > 4
