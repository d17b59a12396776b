"""Commit infos that a committer changes: the retry of this run, the next run and an operator receive them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from distcommit.constructs.forks.by_schema import AllBranches
from distcommit.core.errors import DistcommitError, FencedError, TransientError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.records.log_records import Postponed
from distcommit.core.support.io_batching import run_alone
from distcommit.engine.committing.bucket_committer import BucketCommitter
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.run import run
from distcommit.engine.driver.task_reports import Tally
from distcommit.engine.run_settings import RunSettings
from distcommit.pipeline.task_flow import Branch, TaskFlow
from distcommit.protocol import next_log_record
from distcommit.sinks.base.aggregated_committer import AggregatedCommitter
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.steps import changed_steps
from distcommit.steps.changed_steps import MAX_BYTES
from distcommit.steps.sink_step import SinkCommitStep
from distcommit.steps.step_registry import dump_steps, load_steps
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.logs.fencing import fence_bucket
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.engine.driver.machines import (
    NOTHING,
    Machine,
    begin_ingest,
    dies,
    ingest_all,
    launch,
    source,
    states,
    statuses,
)
from tests.unit.engine.driver.test_custom_sinks import MemoryWriter, run_with

WORLD = World(max_attempts=3)
MAX_ATTEMPTS = 3
"""Failed replays before a store of commit steps quarantines a sequence."""
Answer = Callable[[CommitRequest], CommitOutcome]


@dataclass
class AnsweringSink(CommitterSink):
    """A sink whose answers the test chooses. It records the infos of each request."""

    name: ClassVar[str] = "answering"
    answer: Answer = lambda request: Committed()
    requests: list[CommitRequest] = field(default_factory=list)
    withdrawn: list[CommitRequest] = field(default_factory=list)
    aborted: list[AbortedAttempt] = field(default_factory=list)
    prepares_at_target: bool = False

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return MemoryWriter()

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return _Committer(self)

    @property
    def infos(self) -> list[tuple[Any, ...]]:
        return [request.infos for request in self.requests]


@dataclass
class _Committer(SinkCommitter):
    sink: AnsweringSink

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self.sink.requests += requests
        return [self.sink.answer(request) for request in requests]

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        self.sink.withdrawn += requests

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        self.sink.aborted += aborted_attempts


def counting(request: CommitRequest) -> CommitOutcome:
    """Answer with infos that count the calls."""
    last = request.infos[0]
    return RetryLater("a part remains", [last + 1 if isinstance(last, int) else 1])


def changes(machine: Machine, urn: str = "a") -> int:
    opened = states(WORLD, machine)[urn].open
    assert opened is not None
    return opened.changes


def recorded_infos(machine: Machine, sink: AnsweringSink, urn: str = "a") -> tuple[Any, ...]:
    """Return the infos that the next run would use."""
    after = replace(sink, answer=lambda request: RetryLater("not now"), requests=[])
    run_with(after, machine, NOTHING, WORLD)
    return next(request.infos for request in after.requests if request.dataset_urn == urn)


def test_retry_of_the_same_run_and_the_next_run_receives_the_changed_infos() -> None:
    machine, sink = Machine(), AnsweringSink(answer=counting)
    run_with(sink, machine, source(a=1), WORLD)
    first, *later = sink.infos
    assert first == ({"values": ["a/0/0"]},)
    assert later == [(number,) for number in range(1, len(sink.infos))], "each call receives the infos of the last"
    assert changes(machine) == len(sink.infos)
    again = AnsweringSink()
    assert run_with(again, machine, NOTHING, WORLD).succeeded
    assert again.infos == [(len(sink.infos),)]
    assert statuses(WORLD, machine) == {"a": "idle"}


def test_replay_that_records_a_change_is_not_a_failed_attempt() -> None:
    machine, sink = Machine(), AnsweringSink(answer=counting)
    run_with(sink, machine, source(a=1), WORLD)
    for _ in range(WORLD.max_attempts + 1):
        result = run_with(sink, machine, NOTHING, WORLD)
        assert not result.succeeded
        assert statuses(WORLD, machine) == {"a": "pending"}
    opened = states(WORLD, machine)["a"].open
    assert opened is not None
    assert opened.tried_epochs == ()
    for _ in range(WORLD.max_attempts):
        run_with(AnsweringSink(answer=lambda _: RetryLater("later")), machine, NOTHING, WORLD)
    assert statuses(WORLD, machine) == {"a": "quarantined"}, "without progress, attempts count"


def test_unchanged_infos_are_not_recorded() -> None:
    machine, sink = Machine(), AnsweringSink(answer=lambda request: RetryLater("later", list(request.infos)))
    run_with(sink, machine, source(a=1), WORLD)
    assert changes(machine) == 0
    assert len(set(map(repr, sink.infos))) == 1


def test_large_changes_of_several_datasets_are_recorded_in_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_log_record, "MAX_CHANGED_BYTES", 2_500)
    machine, sink = Machine(), AnsweringSink(answer=lambda _: RetryLater("later", [b"x" * 1_000]))
    sizes: list[int] = []

    def change_steps(*args: Any, **kwargs: Any) -> Postponed | None:
        record = original(*args, **kwargs)
        sizes.append(len(record.sequences) if record else 0)
        return record

    original = next_log_record.change_steps
    monkeypatch.setattr(next_log_record, "change_steps", change_steps)
    run_with(sink, machine, source(a=1, b=1, c=1, d=1, e=1), World(max_attempts=3, buckets=1))
    assert [size for size in sizes if size] == [2, 2, 1]
    assert [changes(machine, urn) for urn in "abcde"] == [1] * 5


@pytest.mark.parametrize("fault", ["is_changed raises", "another number of batches"])
def test_step_whose_change_cannot_be_computed_fails_only_its_own_dataset(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_faulty(step: SinkCommitStep) -> bool:
        return step.request.dataset_urn == "b"

    def is_changed(step: SinkCommitStep) -> bool:
        if fault == "is_changed raises" and is_faulty(step):
            raise ValueError("no answer")
        return True

    def dumped(steps: Sequence[Any]) -> Sequence[Any]:
        return () if fault != "is_changed raises" and is_faulty(steps[0]) else dump_steps(steps)

    monkeypatch.setattr(SinkCommitStep, "is_changed", property(is_changed))
    monkeypatch.setattr(changed_steps, "dump_steps", dumped)
    machine, sink = Machine(), AnsweringSink(answer=counting)
    result = run_with(sink, machine, source(a=1, b=1), WORLD)
    assert (changes(machine, "a") > 0, changes(machine, "b")) == (True, 0)
    assert "COMMIT_INFOS_REJECTED" in str(result.reasons.entries)


def test_changed_infos_survive_a_checkpoint() -> None:
    machine, sink = Machine(), AnsweringSink(answer=counting)
    run_with(sink, machine, source(a=1), WORLD)
    log = WORLD.store(machine).bucket_log(0)
    log.refresh()
    run_alone(log.checkpoint(at_least=1))
    assert recorded_infos(machine, sink) == (len(sink.infos),)


def test_infos_of_two_branches_change_independently() -> None:
    @dataclass
    class Other(AnsweringSink):
        name: ClassVar[str] = "other"

    machine, main, other = Machine(), AnsweringSink(answer=counting), Other()
    settings = WORLD.begin(machine, source(a=1))
    flow = TaskFlow(settings.flow.source, (Branch(main, "one"), Branch(other, "two")), fork=AllBranches())
    run(launch, replace(settings, flow=flow))
    settings = WORLD.begin(machine, NOTHING)
    finished, changed = Other(answer=counting), replace(main, answer=lambda request: Committed(), requests=[])
    flow = TaskFlow(settings.flow.source, (Branch(changed, "one"), Branch(finished, "two")), fork=AllBranches())
    run(launch, replace(settings, flow=flow))
    assert changed.infos == [(len(main.infos),)]
    assert finished.infos == [({"values": ["a/0/0"]},)], "the first call to the second branch has its own infos"
    assert changes(machine) == len(main.infos) + 1


def test_change_is_stored_with_the_sink_s_current_version() -> None:
    @dataclass
    class Newer(AnsweringSink):
        infos_version: ClassVar[int] = 2

        def upgraded(self, info: Any, version: int) -> Any:
            return {"upgraded": info}

    machine, newer = Machine(), Newer(answer=lambda request: RetryLater("later", [{"new": len(request.infos)}]))
    run_with(AnsweringSink(answer=lambda request: RetryLater("later")), machine, source(a=1), WORLD)
    run_with(newer, machine, NOTHING, WORLD)
    assert newer.infos[0] == ({"upgraded": {"values": ["a/0/0"]}},)
    last = Newer()
    run_with(last, machine, NOTHING, WORLD)
    assert last.infos == [({"new": 1},)], "infos of the current version are not upgraded again"


REJECTED: dict[str, Any] = {
    "plain data": [{"not", "plain"}],
    "a sequence": 7,
    "bytes": [b"x" * (MAX_BYTES + 1)],
}


@pytest.mark.parametrize("kind", REJECTED)
def test_infos_that_cannot_be_recorded_leave_the_commit_pending_with_its_last_infos(kind: str) -> None:
    machine, sink = Machine(), AnsweringSink(answer=lambda request: RetryLater("later", ["good"]))
    run_with(sink, machine, source(a=1), WORLD)
    bad = AnsweringSink(answer=lambda request: RetryLater("later", REJECTED[kind]))
    result = run_with(bad, machine, NOTHING, WORLD)
    assert bad.infos == [("good",)]
    reason = result.reasons.entries[0]
    assert reason.kind == "COMMIT_INFOS_REJECTED"
    assert kind in reason.text
    assert "dataset=a" in reason.text
    assert statuses(WORLD, machine) == {"a": "pending"}
    last = AnsweringSink()
    assert run_with(last, machine, NOTHING, WORLD).succeeded
    assert last.infos == [("good",)]


def test_infos_that_shrink_are_recorded_although_they_are_large() -> None:
    machine, size = Machine(), 3 * MAX_BYTES
    sink = AnsweringSink(answer=lambda request: RetryLater("later", [b"x" * size]))
    sink.open_writer = lambda *_: MemoryWriter(values=["y" * (size + 100)])  # type: ignore[method-assign]
    run_with(sink, machine, source(a=1), WORLD)
    assert changes(machine) == 1


def test_changes_beyond_the_limit_are_rejected_and_the_retry_uses_the_last_recorded_infos(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changed_steps, "MAX_CHANGES", 2)
    machine, sink = Machine(), AnsweringSink(answer=counting)
    result = run_with(sink, machine, source(a=1), WORLD)
    assert "expected at most 2 changes; found change 3" in result.reasons.entries[0].text
    assert sink.infos[2:] == [(2,)] * (len(sink.infos) - 2)
    assert len(sink.infos) > 3
    last = AnsweringSink()
    assert run_with(last, machine, NOTHING, WORLD).succeeded
    assert last.infos == [(2,)]


def test_abandoned_dataset_rolls_back_and_aborts_with_the_latest_infos() -> None:
    machine = Machine()
    answers: Iterator[CommitOutcome] = iter([RetryLater("later", ["second"]), FailedForGood("never")])
    run_with(AnsweringSink(answer=lambda _: next(answers), prepares_at_target=True), machine, source(a=1), WORLD)
    assert statuses(WORLD, machine) == {"a": "quarantined"}
    sink = AnsweringSink(prepares_at_target=True)
    operator_actions.abandon(WORLD.store(machine), "a", "person", sink.committers)
    assert [request.infos for request in sink.withdrawn] == [("second",)]
    assert [attempt.infos for attempt in sink.aborted] == [("second",)]


def test_abandon_uses_infos_that_a_run_has_changed_before_revoking(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    run_with(AnsweringSink(answer=lambda _: FailedForGood("never")), machine, source(a=1), WORLD)
    changing: list[AnsweringSink] = []

    def change_beside(*args: Any) -> Any:
        """Another operator releases and quarantines the dataset. A run changes its infos in between."""
        steps = list(load_steps(*args))
        if not changing:
            changing.append(AnsweringSink(answer=lambda _: RetryLater("later", ["changed"])))
            operator_actions.retry(WORLD.store(machine), "a", "other")
            run_with(changing[0], machine, NOTHING, WORLD)
            operator_actions.quarantine(WORLD.store(machine), "a", "other")
        return steps

    monkeypatch.setattr(operator_actions, "load_steps", change_beside)
    sink = AnsweringSink(prepares_at_target=True)
    operator_actions.abandon(WORLD.store(machine), "a", "person", sink.committers)
    assert [request.infos for request in sink.withdrawn] == [("changed",)]
    assert [attempt.infos for attempt in sink.aborted] == [("changed",)]
    assert statuses(WORLD, machine) == {"a": "idle"}


def test_second_of_two_committers_of_the_same_infos_uses_the_infos_of_the_first() -> None:
    machine = Machine()
    run_with(AnsweringSink(answer=lambda _: RetryLater("later")), machine, source(a=1), WORLD)
    settings = WORLD.begin(machine, NOTHING)
    twins: list[BucketCommitter] = []

    def flow(sink: AnsweringSink) -> Any:
        return replace(settings, flow=TaskFlow.straight(settings.flow.source, sink))

    def beside(request: CommitRequest) -> CommitOutcome:
        if not twins:
            twins.append(BucketCommitter(flow(first), 0, Tally()))
            run_alone(twins[0].replay(frozenset()))
        return RetryLater("later", ["of the second"])

    first, second = AnsweringSink(answer=lambda _: RetryLater("later", ["of the first"])), AnsweringSink(answer=beside)
    run_alone(fence_bucket(settings.store.bucket_log(0, settings.epoch), settings.epoch, settings.run_id))
    run_alone(BucketCommitter(flow(second), 0, Tally()).replay(frozenset()))
    assert first.infos == second.infos
    assert recorded_infos(machine, first) == ("of the first",)


def test_sealing_committer_retries_with_the_infos_that_another_one_has_recorded() -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, source(a=1))
    twins: list[BucketCommitter] = []

    def flow(sink: AnsweringSink) -> RunSettings:
        return replace(settings, min_interval_s=0, flow=TaskFlow.straight(settings.flow.source, sink))

    def beside(request: CommitRequest) -> CommitOutcome:
        if not twins:
            twins.append(BucketCommitter(flow(first), 0, Tally()))
            run_alone(twins[0].publish(take_over=True))
        return RetryLater("later", ["of the second"])

    first, second = AnsweringSink(answer=lambda _: RetryLater("later", ["of the first"])), AnsweringSink(answer=beside)
    ingest_all(flow(second), tasks)
    record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
    drain_partition(flow(second), 0)
    assert first.infos == second.infos[:1] == [({"values": ["a/0/0"]},)]
    assert second.infos[1] == ("of the first",)


@pytest.mark.parametrize("infos", [None, ["of the newer run"]])
def test_fenced_run_changes_nothing(infos: list[str] | None) -> None:
    machine = Machine()
    newer: list[AnsweringSink] = []

    def overtaken(request: CommitRequest) -> CommitOutcome:
        if not newer:
            newer.append(AnsweringSink(answer=lambda _: RetryLater("later", infos)))
            run_with(newer[0], machine, NOTHING, WORLD)
        return RetryLater("later", ["of the fenced run"])

    sink = AnsweringSink(answer=overtaken)
    with pytest.raises(FencedError):
        run_with(sink, machine, source(a=1), WORLD)
    assert newer[0].infos[0] == ({"values": ["a/0/0"]},)
    assert len(sink.requests) == 1, "the fenced run stops"
    assert recorded_infos(machine, sink) == (newer[0].infos[0] if infos is None else tuple(infos))


def test_run_killed_before_the_change_is_recorded_is_continued_with_the_older_infos() -> None:
    machine, sink = Machine(), AnsweringSink(answer=counting)
    machine.faults.append(dies("rename", "/log/bucket", record=Postponed, machine=machine))
    with pytest.raises(Crashed):
        run_with(sink, machine, source(a=1), WORLD)
    machine.restart()
    assert len(sink.requests) == 1
    last = AnsweringSink()
    assert run_with(last, machine, NOTHING, WORLD).succeeded
    assert last.infos == sink.infos


@pytest.mark.parametrize("repeats_object", [True, False])
def test_commit_step_store_records_changed_infos(repeats_object: bool) -> None:
    machine, sink = Machine(), AnsweringSink(answer=counting)
    store = sealed_store(machine, sink)
    sequence = store.get_commit_sequence("job", "a")
    for _ in range(3):
        assert sequence is not None
        with pytest.raises(TransientError, match="a part remains"):
            sequence.commit()
        if not repeats_object:
            sequence = store.get_commit_sequence("job", "a")
    last = AnsweringSink()
    store, _ = opened_store(machine, last)
    sequence = store.get_commit_sequence("job", "a")
    assert sequence is not None
    assert sequence.commit()
    assert sink.infos == [("first",), (1,), (2,)]
    assert last.infos == [(3,)]


@pytest.mark.parametrize("rejected", [b"x" * (MAX_BYTES + 1), {"not", "plain"}])
def test_repeated_commit_sequence_uses_the_last_recorded_infos_if_a_change_is_rejected(rejected: Any) -> None:
    machine = Machine()
    answers: Iterator[CommitOutcome] = iter(
        [RetryLater("later", ["second"]), RetryLater("later", [rejected]), RetryLater("later"), Committed()]
    )
    sink = AnsweringSink(answer=lambda _: next(answers))
    sequence = sealed_store(machine, sink).get_commit_sequence("job", "a")
    assert sequence is not None
    for expected in ("TARGET_UNAVAILABLE", "COMMIT_INFOS_REJECTED", "TARGET_UNAVAILABLE"):
        with pytest.raises(DistcommitError) as failure:
            sequence.commit()
        assert failure.value.id == expected
    assert sequence.commit()
    assert sink.infos == [("first",), ("second",), ("second",), ("second",)]


def test_commit_step_store_does_not_count_a_replay_that_records_a_change() -> None:
    machine, sink = Machine(), AnsweringSink(answer=counting)
    sealed_store(machine, sink)
    for _ in range(MAX_ATTEMPTS + 1):
        sequence = opened_store(machine, sink)[0].get_commit_sequence("job", "a")
        assert sequence is not None
        with pytest.raises(TransientError, match="a part remains"):
            sequence.commit()
    assert opened_store(machine, sink)[0].get_commit_sequence("job", "a") is not None, "the dataset is pending"


def sealed_store(machine: Machine, sink: AnsweringSink) -> LogCommitStepStore:
    """Return an open store with one sealed step of the sink."""
    for folder in (ROOTS.staging, ROOTS.output):
        World().store(machine).fs.make_folders(folder)
    store, context = opened_store(machine, sink)
    store.put("job", "a", SinkCommitStep(sink, CommitRequest("a", 1, ("first",)), context.for_committers))
    store.seal("job", "a")
    return store


def opened_store(machine: Machine, sink: AnsweringSink) -> tuple[LogCommitStepStore, StepContext]:
    """Open the store of commit steps as a new process."""
    context = StepContext(SimulatedFileSystem(machine), ROOTS.staging, ROOTS.output, sink.committers)
    store = LogCommitStepStore(context.fs, "/job/steps", context, max_attempts=MAX_ATTEMPTS)
    store.create("job")
    return store, context


@dataclass
class TogetherSink(AnsweringSink):
    """A sink of one commit group, whose requests are combined into one commit."""

    name: ClassVar[str] = "together"
    grouped_by: ClassVar[str] = "target"

    def commit_group(self, dataset_urn: str) -> str:
        return "target"

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return _Aggregated(self)


@dataclass
class _Aggregated(AggregatedCommitter[Sequence[CommitRequest]]):
    sink: TogetherSink

    def combine(self, requests: Sequence[CommitRequest]) -> Sequence[CommitRequest]:
        return requests

    def commit_aggregated(self, aggregated: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self.sink.requests += aggregated
        return [self.sink.answer(request) for request in aggregated]


@pytest.mark.parametrize("job_level", [False, True])
def test_aggregated_commit_changes_the_infos_of_each_request(job_level: bool) -> None:
    machine, world = Machine(), World(job_level=job_level)
    sink = TogetherSink(answer=lambda request: RetryLater("later", [f"rest of {request.dataset_urn}"]))
    run_with(sink, machine, source(a=1, b=1), world)
    assert {urn: changes(machine, urn) for urn in ("a", "b")} == {"a": 1, "b": 1}
    last = TogetherSink()
    assert run_with(last, machine, NOTHING, world).succeeded
    assert [request.infos for request in last.requests] == [("rest of a",), ("rest of b",)]


def test_at_least_once_repeats_the_request_with_its_first_infos() -> None:
    machine, sink = Machine(), AnsweringSink(answer=counting)
    run_with(sink, machine, source(a=1), World(at_least_once=True))
    assert len(sink.infos) > 1
    assert sink.infos == [({"values": ["a/0/0"]},)] * len(sink.infos)


@pytest.mark.parametrize("infos", [["rest"], [b"x" * (MAX_BYTES + 1)]])
def test_lost_commit_is_quarantined_although_another_branch_has_changed_its_infos(
    infos: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: CommitRequest) -> CommitOutcome:
        return FailedForGood("never") if request.branch == "two" else RetryLater("later", infos)

    monkeypatch.setattr(SinkCommitStep, "batches", lambda steps: [steps])
    machine, world = Machine(), World(max_attempts=9)
    for sink, records in (
        (AnsweringSink(answer=lambda _: RetryLater("later")), source(a=1)),
        (AnsweringSink(answer=answer), NOTHING),
    ):
        settings = world.begin(machine, records)
        flow = TaskFlow(settings.flow.source, (Branch(sink, "one"), Branch(sink, "two")), fork=AllBranches())
        result = run(launch, replace(settings, flow=flow))
    assert statuses(world, machine) == {"a": "quarantined"}
    assert result.reasons.entries[0].kind == "COMMIT_REJECTED"
