"""Whole runs with a custom sink: the answers of its committer and their effect on the datasets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from distcommit.constructs.forks.by_schema import AllBranches
from distcommit.core.errors import ConflictError, DistcommitError, SinkUnavailableError
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.interfaces.sink import (
    Abilities,
    AttemptIdentity,
    Origin,
    Origins,
    Prepared,
    Sink,
    SinkWriter,
    StagingArea,
)
from distcommit.core.interfaces.sink_metrics import SinkMetrics
from distcommit.core.records.run_counts import COMMIT_COUNTS
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import RunResult, run
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import NOTHING, STAGING, Machine, go, launch, source, states, statuses

WORLD = World()


@dataclass
class MemorySink(CommitterSink):
    """A sink with a ledger in this process. `answers` may answer a request instead."""

    name: ClassVar[str] = "memory"
    answers: Callable[[CommitRequest], CommitOutcome | None] = lambda request: None
    opening: Callable[[], None] = lambda: None
    aborting: Callable[[], None] = lambda: None
    calls: list[list[CommitRequest]] = field(default_factory=list)
    ledger: dict[tuple[str, int], tuple[Any, ...]] = field(default_factory=dict)
    taken_back: list[CommitRequest] = field(default_factory=list)
    attempts: list[AttemptIdentity] = field(default_factory=list)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        self.attempts.append(attempt)
        return MemoryWriter(attempt.metrics)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        self.opening()
        return MemoryCommitter(self, context.metrics)

    @property
    def rows(self) -> dict[str, list[str]]:
        """Return the visible values by dataset."""
        values: dict[str, list[str]] = {}
        for (urn, _), infos in sorted(self.ledger.items()):
            values.setdefault(urn, []).extend(value for info in infos for value in info["values"])
        return values


@dataclass
class MemoryWriter(SinkWriter):
    metrics: SinkMetrics = field(default_factory=SinkMetrics)
    values: list[str] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        self.values += batch["value"].to_pylist()
        self.metrics.count("values", batch.num_rows)

    def prepare_commit(self) -> Prepared:
        return Prepared([{"values": self.values}] if self.values else [])

    def abort(self) -> None:
        pass


@dataclass
class MemoryCommitter(SinkCommitter):
    sink: MemorySink
    metrics: SinkMetrics = field(default_factory=SinkMetrics)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self.sink.calls.append(list(requests))
        self.metrics.count("calls")
        return [self.sink.answers(request) or self._commit(request) for request in requests]

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        self.sink.aborting()
        self.sink.taken_back += requests

    def close(self) -> None:
        raise ConnectionError("closing fails, which changes nothing")

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        key = (request.dataset_urn, request.epoch)
        if key in self.sink.ledger:
            return AlreadyCommitted()
        self.sink.ledger[key] = request.infos
        return Committed()


def run_with(sink: Sink, machine: Machine, data: ModelSource, world: World = WORLD) -> RunResult:
    """Run the job once."""
    return run(launch, replace(world.begin(machine, data, sink=sink), min_interval_s=1_000_000))


def answer_for(urn: str, outcome: CommitOutcome) -> Callable[[CommitRequest], CommitOutcome | None]:
    return lambda request: outcome if request.dataset_urn == urn else None


def raised(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def tried(machine: Machine) -> dict[str, int]:
    """Return the number of runs that count as failed attempts, by dataset."""
    return {urn: len(state.tried_epochs) for urn, state in states(WORLD, machine).items() if state.sequence}


def test_all_ready_datasets_of_a_bucket_are_one_call_with_each_work_unit_in_its_request() -> None:
    machine, sink = Machine(), MemorySink()
    two = ModelDataset({"0": 2})
    data = ModelSource({"a": ModelDataset({"0": 4}, units=2), "b": two, "c": two, "nothing": ModelDataset({"0": 0})})
    result = run_with(sink, machine, data)
    assert result.succeeded, result
    ((a, b, _),) = sink.calls
    assert [info["values"] for info in a.infos] == [["a/0/0", "a/0/1"], ["a/0/2", "a/0/3"]]
    assert (a.dataset_urn, b.dataset_urn, a.epoch, b.epoch) == ("a", "b", result.epoch, result.epoch)
    assert (result.totals.records_published, result.totals.files_published) == (8, 0)
    assert machine.paths(STAGING) == {}


def test_writer_receives_its_task_number_and_the_number_of_tasks() -> None:
    machine, sink = Machine(), MemorySink()
    data = ModelSource({"large": ModelDataset({"0": 64}), **{f"d{n}": ModelDataset({"0": 1}) for n in range(20)}})
    settings = replace(WORLD.begin(machine, data, sink=sink), partitions=3)
    assert run(launch, settings).succeeded
    (large,) = (attempt for attempt in sink.attempts if attempt.dataset_urn == "large")
    assert (large.task, large.tasks) == (0, 4), "the large work unit has its own task, and each partition has one"
    assert {attempt.task for attempt in sink.attempts} == {0, 1, 2, 3}
    assert {(attempt.tasks, attempt.epoch) for attempt in sink.attempts} == {(4, settings.epoch)}


def test_next_run_continues_at_the_last_committed_watermark() -> None:
    machine, sink = Machine(), MemorySink()
    for end in (2, 2, 5):
        assert run_with(sink, machine, source(a=end)).succeeded
    assert sink.rows == {"a": [f"a/0/{offset}" for offset in range(5)]}
    assert len(sink.calls) == 2, "nothing is committed without new records"


def test_commit_to_be_retried_later_stays_pending_and_counts_an_attempt_for_each_replay() -> None:
    machine, sink = Machine(), MemorySink(answers=answer_for("b", RetryLater("the target is locked")))
    result = run_with(sink, machine, source(a=1, b=1))
    assert not result.succeeded
    assert [(r.subject, "the target is locked" in r.text) for r in result.reasons.entries] == [("b", True)]
    assert statuses(WORLD, machine) == {"a": "idle", "b": "pending"}
    assert tried(machine) == {"b": 0}, "the sealing run is not a failed replay"
    for attempt in (1, 2):
        result = run_with(sink, machine, source(a=attempt + 1, b=9))
        assert any("the target is locked" in reason.text for reason in result.reasons.entries)
        assert tried(machine) == {"b": attempt}
    run_with(sink, machine, source(a=3, b=9))
    assert statuses(WORLD, machine) == {"a": "idle", "b": "quarantined"}
    sink.answers = lambda request: None
    operator_actions.retry(WORLD.store(machine), "b", "person")
    run_with(sink, machine, source(a=3, b=1))
    assert sink.rows == {"a": ["a/0/0", "a/0/1", "a/0/2"], "b": ["b/0/0"]}


def test_permanent_commit_failure_is_quarantined_at_once_and_others_continue() -> None:
    machine, sink = Machine(), MemorySink(answers=answer_for("a", FailedForGood("its schema does not fit")))
    result = run_with(sink, machine, source(a=1, b=2))
    assert statuses(WORLD, machine) == {"a": "quarantined", "b": "idle"}
    state = states(WORLD, machine)["a"]
    assert "its schema does not fit" in state.reason
    assert "the sink 'memory'" in state.reason
    assert state.watermark is None
    assert (result.succeeded, result.totals.datasets_quarantined) == (False, 1)


@pytest.mark.parametrize("later", range(7))
def test_permanent_commit_failure_is_counted_once_whichever_try_it_is(later: int) -> None:
    machine, answers = Machine(), iter([RetryLater("not yet")] * later)
    sink = MemorySink(answers=lambda request: next(answers, FailedForGood("never")))
    result = run_with(sink, machine, source(a=1))
    assert statuses(WORLD, machine) == {"a": "quarantined"}
    assert (len(sink.calls), result.totals.datasets_quarantined) == (later + 1, 1)


def test_dataset_whose_commit_raises_does_not_block_the_others() -> None:
    def answers(request: CommitRequest) -> CommitOutcome | None:
        if request.dataset_urn == "b":
            raise ZeroDivisionError("bad row")
        return None

    machine, sink = Machine(), MemorySink(answers=answers)
    run_with(sink, machine, source(a=1, b=1, c=1))
    assert statuses(WORLD, machine) == {"a": "idle", "b": "pending", "c": "idle"}
    assert sink.rows == {"a": ["a/0/0"], "c": ["c/0/0"]}


def test_run_counts_the_requests_and_answers_of_its_committers() -> None:
    def answers(request: CommitRequest) -> CommitOutcome | None:
        if request.dataset_urn == "raises":
            time.sleep(0.002)
            raise ZeroDivisionError("bad row")
        outcomes: dict[str, CommitOutcome] = {
            "never": FailedForGood("never"),
            "later": RetryLater("later"),
            "known": AlreadyCommitted(),
        }
        return outcomes.get(request.dataset_urn)

    machine, sink = Machine(), MemorySink(answers=answers)
    totals = run_with(sink, machine, source(new=1, known=1, later=1, never=1, raises=1)).totals
    asked = sum(map(len, sink.calls))
    assert (totals.commit_attempts, totals.commit_successes, totals.commit_failures) == (asked, 2, 1)
    assert totals.commit_retries == asked - 3
    in_doubt = [call for call in sink.calls if any(request.dataset_urn == "raises" for request in call)]
    assert totals.commit_in_doubt == sum(map(len, in_doubt)) > 0
    assert 2 <= totals.target_ms < 60_000
    (of_sink,) = totals.flow.sinks
    assert (of_sink.branch, of_sink.sink, of_sink.records_written) == ("main", "memory", 5)
    assert {name: getattr(of_sink, name) for name in COMMIT_COUNTS} == {
        name: getattr(totals, name) for name in COMMIT_COUNTS
    }
    assert {counter.name: counter.count for counter in totals.flow.counters} == {"values": 5, "calls": len(sink.calls)}
    totals = run_with(sink, machine, source(new=1, known=1)).totals
    assert totals.commit_attempts == totals.commit_retries > 0, "only the pending commits are requested"


def test_repeated_request_of_a_prepared_transaction_is_in_doubt_and_another_one_is_not() -> None:
    class PreparingSink(MemorySink):
        @property
        def leaves_in_doubt(self) -> bool:
            return True

    for kind, share in ((PreparingSink, 1), (MemorySink, 0)):
        totals = run_with(kind(answers=lambda request: RetryLater("later")), Machine(), source(a=1)).totals
        assert totals.commit_in_doubt == share * totals.commit_retries
        assert totals.commit_retries > 0


@pytest.mark.parametrize("other", ["files", "another sink"])
def test_job_without_the_sink_leaves_its_commits_pending_for_any_number_of_runs(other: str) -> None:
    class OtherSink(MemorySink):
        name = "other"

    machine, sink = Machine(), MemorySink(answers=lambda request: RetryLater("not today"))
    run_with(sink, machine, source(a=1))
    for _ in range(WORLD.max_attempts + 1):
        result = go(WORLD, machine, source(c=1)) if other == "files" else run_with(OtherSink(), machine, NOTHING)
        text = next(reason.text for reason in result.reasons.entries if reason.subject == "a")
        assert "a job file with the sink 'memory'" in text
        assert ("a job whose sink has no committer" if other == "files" else "'other'") in text
    assert tried(machine) == {"a": 0}
    sink.answers = lambda request: None
    run_with(sink, machine, NOTHING)
    assert sink.rows == {"a": ["a/0/0"]}


def test_sink_that_cannot_be_opened_counts_no_failed_attempt_and_is_opened_once_for_a_batch() -> None:
    machine, sink = Machine(), MemorySink(answers=lambda request: RetryLater("not today"))
    run_with(sink, machine, source(a=1, b=1))
    opened: list[int] = []

    def opening() -> None:
        opened.append(1)
        raise ConnectionError("no route to the target")

    sink.opening = opening
    for attempt in range(1, WORLD.max_attempts + 2):
        result = run_with(sink, machine, NOTHING)
        assert any("no route to the target" in reason.text for reason in result.reasons.entries)
        assert len(opened) == attempt
    assert statuses(WORLD, machine) == {"a": "pending", "b": "pending"}
    assert tried(machine) == {"a": 0, "b": 0}


def test_committer_that_leaves_a_request_unanswered_closes_nothing() -> None:
    class Short(MemoryCommitter):
        def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
            return []

    class ShortSink(MemorySink):
        def open_committer(self, context: CommitterContext) -> SinkCommitter:
            return Short(self)

    machine = Machine()
    run_with(ShortSink(), machine, source(a=1))
    assert statuses(WORLD, machine) == {"a": "pending"}
    result = run_with(ShortSink(), machine, NOTHING)
    assert any("1 outcomes; found 0" in reason.text for reason in result.reasons.entries), result.reasons.entries


def test_answer_that_is_not_an_outcome_closes_nothing() -> None:
    machine, sink = Machine(), MemorySink(answers=lambda request: "ok")  # type: ignore[arg-type, return-value]
    run_with(sink, machine, source(a=1))
    assert statuses(WORLD, machine) == {"a": "pending"}


def test_job_level_commits_nothing_unless_all_can_be_committed() -> None:
    world = World(job_level=True)
    machine, sink = Machine(), MemorySink()
    bad = ModelSource({"a": ModelDataset({"0": 1}), "b": ModelDataset({"0": 1}, fails=frozenset({"0"}))})
    assert not run_with(sink, machine, bad, world).decided
    assert sink.calls == []
    assert run_with(sink, machine, source(a=2, b=1), world).succeeded
    assert sink.rows == {"a": ["a/0/0", "a/0/1"], "b": ["b/0/0"]}


class TestAbandon:
    @pytest.fixture
    def machine(self) -> Machine:
        """Return a machine on which dataset a is quarantined."""
        machine = Machine()
        run_with(MemorySink(answers=lambda request: FailedForGood("no")), machine, source(a=1))
        return machine

    def test_committer_revokes_prepared_commits_and_the_next_run_reads_again(self, machine: Machine) -> None:
        sink, sequence = MemorySink(), states(WORLD, machine)["a"].sequence
        assert sequence is not None
        operator_actions.abandon(WORLD.store(machine), "a", "person", sink.committers)
        (taken_back,) = sink.taken_back
        infos = ({"values": ["a/0/0"]},)
        assert taken_back == CommitRequest("a", sequence.epoch, infos, bases=(0,), attempts=taken_back.attempts)
        assert len(taken_back.attempts) == 1
        assert statuses(WORLD, machine) == {"a": "idle"}
        run_with(sink, machine, source(a=2))
        assert sink.rows == {"a": ["a/0/0", "a/0/1"]}

    def test_commit_that_cannot_be_revoked_is_quarantined_as_before(self, machine: Machine) -> None:
        sink = MemorySink(aborting=raised(ConflictError("it is committed")))
        with pytest.raises(ConflictError, match="it is committed"):
            operator_actions.abandon(WORLD.store(machine), "a", "person", sink.committers)
        assert statuses(WORLD, machine) == {"a": "quarantined"}
        operator_actions.retry(WORLD.store(machine), "a", "person")
        run_with(MemorySink(), machine, NOTHING)
        assert statuses(WORLD, machine) == {"a": "idle"}

    def test_target_that_is_down_leaves_a_dataset_revoking_until_it_is_abandoned_again(self, machine: Machine) -> None:
        sink = MemorySink(aborting=raised(OSError("no route")))
        with pytest.raises(DistcommitError, match="OSError: no route"):
            operator_actions.abandon(WORLD.store(machine), "a", "person", sink.committers)
        assert statuses(WORLD, machine) == {"a": "revoking"}
        operator_actions.abandon(WORLD.store(machine), "a", "person", MemorySink().committers)
        assert statuses(WORLD, machine) == {"a": "idle"}

    def test_committer_without_abort_cannot_revoke(self, machine: Machine) -> None:
        class Plain(MemorySink):
            def open_committer(self, context: CommitterContext) -> SinkCommitter:
                return PlainCommitter()

        class PlainCommitter(SinkCommitter):
            def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
                return []

        with pytest.raises(ConflictError, match=r"cannot roll back .*dataset=a.*retry or accept"):
            operator_actions.abandon(WORLD.store(machine), "a", "person", Plain().committers)
        assert statuses(WORLD, machine) == {"a": "quarantined"}

    def test_abandon_without_the_sink_changes_nothing(self, machine: Machine) -> None:
        with pytest.raises(SinkUnavailableError, match="the sink 'memory'"):
            operator_actions.abandon(WORLD.store(machine), "a", "person")
        assert statuses(WORLD, machine) == {"a": "quarantined"}


def test_task_whose_staged_files_cannot_be_synced_commits_none_of_them() -> None:
    """Only durable files may be sealed, also for a custom sink."""
    machine, sink = Machine(), MemorySink()

    def fault(operation: Any) -> None:
        if operation.kind == "syncfs":
            raise OSError(5, "EIO")

    settings = WORLD.begin(machine, source(a=1))
    machine.faults.append(fault)
    result = run(launch, replace(settings, flow=TaskFlow.straight(settings.flow.source, sink)))
    assert (result.totals.datasets_failed, sink.calls) == (1, [])


def test_branches_with_revocable_files_are_committed_first() -> None:
    machine, observed = Machine(), list[bool]()
    sink = MemorySink(opening=lambda: observed.append(bool(machine.paths("/job/output/a/files"))))
    settings = WORLD.begin(machine, source(a=3))
    branches = (Branch(sink, "memory"), Branch(FileSink(compression="none"), "files"))
    flow = TaskFlow(settings.flow.source, branches, fork=AllBranches())
    assert run(launch, replace(settings, flow=flow)).succeeded
    assert sink.rows == {"a": ["a/0/0", "a/0/1", "a/0/2"]}
    assert observed == [True]


@dataclass
class LastingSink(MemorySink):
    """A sink whose commits can't be revoked."""

    name: ClassVar[str] = "a-lasting-one"
    abilities: ClassVar[Abilities] = Abilities(can_roll_back=False)


def test_irrevocable_commit_comes_last_and_only_if_no_target_refused() -> None:
    machine, data = Machine(), source(a=3, b=3)
    table, lasting = MemorySink(answers=answer_for("a", RetryLater("not yet"))), LastingSink()
    settings = WORLD.begin(machine, data)
    branches = (Branch(lasting, "lasting"), Branch(table, "table"))
    flow = TaskFlow(settings.flow.source, branches, fork=AllBranches())
    run(launch, replace(settings, flow=flow))
    assert (set(table.rows), set(lasting.rows)) == ({"b"}, {"b"})
    assert statuses(WORLD, machine)["a"] == "pending"
    table.answers = lambda request: None
    assert run(launch, replace(WORLD.begin(machine, data), flow=flow)).succeeded
    values = [f"a/0/{number}" for number in range(3)]
    assert (table.rows["a"], lasting.rows["a"]) == (values, values)
    assert statuses(WORLD, machine)["a"] == "idle"


@dataclass
class Closing(Converter):
    """A converter that records its calls and raises when it is closed."""

    notes: list[str] = field(default_factory=list)

    def begin_work_unit(self, unit: WorkUnit) -> None:
        self.notes.append(unit.dataset_urn)

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        self.notes.append("convert")
        yield Converted(batch)

    def close(self) -> None:
        self.notes.append("close")
        raise ConnectionError("can't close")


def test_converters_stay_open_across_work_units_and_are_closed_in_the_end() -> None:
    converter, settings = Closing(), WORLD.begin(Machine(), source(a=3, b=2))
    branch = Branch(FileSink(compression="none"), stages=(Stage("closing", converter),))
    assert run(launch, replace(settings, flow=TaskFlow(settings.flow.source, (branch,)))).succeeded
    assert sorted(converter.notes[:4:2]) == ["a", "b"], "the converter knows the dataset of the records"
    assert converter.notes[1::2] == ["convert", "convert"]
    assert converter.notes[4:] == ["close"]
