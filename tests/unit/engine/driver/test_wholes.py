"""Job-level commits to a grouped target: all members of a group in one commit of a run, or none of them."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from distcommit.constructs.forks.by_schema import AllBranches
from distcommit.core.commit_groups import CommitGroups
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    HeldBack,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.constructs import ForkOperator
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.run import RunResult, run
from distcommit.pipeline.task_flow import Branch, TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.operator import operator_actions
from distcommit.stores.operator.operator_actions import Release
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import (
    OUTPUT,
    STAGING,
    Machine,
    Meeting,
    dies_at,
    fails,
    launch,
    source,
    statuses,
)
from tests.unit.engine.driver.test_own_sinks import MemorySink, run_with

JOB = World(buckets=3, job_level=True)
DATA = source(bad=1, one=2, two=[1, 1])
ALL = frozenset(DATA.datasets)
REST = ALL - {"bad"}


@dataclass
class OneTable(MemorySink):
    """All datasets go to one table. `commits`: which were new in each commit of it, with its epoch; `refused`: datasets
    that fail for good, `later`: that have to wait."""

    grouped_by: ClassVar[str] = "table"
    commits: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    refused: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    revoked: set[tuple[str, int]] = field(default_factory=set)
    breaks: bool = False

    def commit_group(self, dataset_urn: str) -> str:
        return "table"

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return TableCommitter(self)

    def store(self, machine: Machine) -> JobStore:
        return replace(JOB.store(machine), groups=CommitGroups(self))


@dataclass
class TableCommitter(SinkCommitter):
    sink: OneTable

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return [self._commit([request])[0] for request in requests]

    def commit_atomically(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        if self.sink.breaks:
            raise ConnectionError("no answer")
        return self._commit(requests)

    def abort(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            assert (request.dataset_urn, request.epoch) not in self.sink.ledger
            self.sink.revoked.add((request.dataset_urn, request.epoch))

    def _commit(self, requests: Sequence[CommitRequest]) -> list[CommitOutcome]:
        new = {(r.dataset_urn, r.epoch): r.infos for r in requests if (r.dataset_urn, r.epoch) not in self.sink.ledger}
        for urn, epoch in new:
            refused = urn in self.sink.refused or (urn, epoch) in self.sink.revoked
            if refused or urn in self.sink.later:
                answer = FailedForGood("its rows are gone") if refused else RetryLater("not yet")
                return [answer if r.dataset_urn == urn else HeldBack(urn) for r in requests]
        if new:
            self.sink.commits.append((requests[0].epoch, frozenset(urn for urn, _ in new)))
            self.sink.ledger |= new
        return [Committed() if (r.dataset_urn, r.epoch) in new else AlreadyCommitted() for r in requests]


def check_exact(machine: Machine, sink: OneTable, data: ModelSource = DATA) -> None:
    expected = {
        urn: sorted(f"{urn}/{part}/{n}" for part, count in dataset.partitions.items() for n in range(count))
        for urn, dataset in data.datasets.items()
    }
    assert {urn: sorted(values) for urn, values in sink.rows.items()} == expected
    assert JOB.watermarks(machine) == {urn: Watermark(dict(d.partitions)) for urn, d in data.datasets.items()}


def told(result: RunResult) -> dict[str, str]:
    return {reason.subject: reason.text for reason in result.totals.reasons}


def test_all_of_a_run_are_one_commit() -> None:
    machine, sink = Machine(), OneTable()
    result = run_with(sink, machine, DATA, JOB)
    assert result.succeeded
    assert sink.commits == [(result.epoch, ALL)]
    check_exact(machine, sink)


def test_killed_anywhere_each_run_has_committed_all_of_its_datasets_at_once_or_none() -> None:
    """Killed in the run, and the next one where the first was killed; three kills beyond each other in all."""
    crashes = 0
    for number in range(2000):
        machine, sink = Machine(), OneTable()
        JOB.store(machine)
        machine.faults.append(dies_at(number))
        with suppress(Crashed):
            assert run_with(sink, machine, DATA, JOB).succeeded
            break
        crashes += 1
        machine.restart()
        machine.faults.append(dies_at(number % 23))
        with suppress(Crashed):
            run_with(sink, machine, DATA, JOB)
        machine.restart()
        assert run_with(sink, machine, DATA, JOB).succeeded, number
        assert [members for _, members in sink.commits] == [ALL], number
        check_exact(machine, sink)
    assert crashes > 30


@pytest.mark.parametrize("how", Release)
def test_one_that_fails_for_good_holds_the_others_until_it_is_released(how: Release) -> None:
    machine, sink = Machine(), OneTable(refused=frozenset({"bad"}))
    result = run_with(sink, machine, DATA, JOB)
    epoch = result.epoch
    assert (result.decided, sink.commits) == (True, [])
    held = {"bad": "quarantined", "one": "pending", "two": "pending"}
    assert statuses(JOB, machine) == held
    assert "its rows are gone" in told(result)["bad"]
    assert "held_by=bad" in told(result)["one"]
    for _ in range(JOB.max_attempts + 2):  # nobody's attempt: they wait for as long as it takes
        result = run_with(sink, machine, source(bad=1, one=3, two=[1, 1]), JOB)
        assert (result.decided, sink.commits, statuses(JOB, machine)) == (False, [], held)
        assert "held_by=bad" in told(result)["two"]
    if how is Release.RETRY:
        sink.refused = frozenset()
    operator_actions.release(sink.store(machine), "bad", how, "somebody", sink.committers)
    sink.refused = frozenset()
    result = run_with(sink, machine, DATA, JOB)
    assert result.succeeded
    match how:
        case Release.RETRY:
            assert sink.commits == [(epoch, ALL)]
        case Release.ACCEPT:
            assert sink.commits == [(epoch, REST)]
        case Release.ABANDON | Release.RESTART:
            assert sink.commits == [(epoch, REST), (result.epoch, {"bad"})], "it was read again"
    if how is not Release.ACCEPT:
        check_exact(machine, sink)


def test_killed_anywhere_while_one_fails_nothing_is_committed_and_its_release_commits_the_others_at_once() -> None:
    crashes = 0
    for number in range(2000):
        machine, sink = Machine(), OneTable(refused=frozenset({"bad"}))
        JOB.store(machine)
        machine.faults.append(dies_at(number))
        with suppress(Crashed):
            run_with(sink, machine, DATA, JOB)
            break
        crashes += 1
        machine.restart()
        for _ in range(2):
            run_with(sink, machine, DATA, JOB)
            assert sink.commits == [], number
        assert statuses(JOB, machine)["bad"] == "quarantined"
        operator_actions.abandon(sink.store(machine), "bad", "somebody", sink.committers)
        sink.refused = frozenset()
        machine.faults.append(dies_at(number % 29))
        with suppress(Crashed):
            run_with(sink, machine, DATA, JOB)
        machine.restart()
        run_with(sink, machine, DATA, JOB)
        assert [members for _, members in sink.commits] == [REST, {"bad"}], number
        check_exact(machine, sink)
    assert crashes > 30


def test_a_zombie_of_the_run_commits_all_or_nothing_whenever_it_goes_on() -> None:
    """A newer run, a person who abandons what has failed and one more run, between any two calls of the older one."""
    met = 0
    for number in range(2000):
        machine, sink = Machine(), OneTable(refused=frozenset({"bad"}))
        JOB.store(machine)

        def act(machine: Machine = machine, sink: OneTable = sink) -> bool:
            run_with(sink, machine, DATA, JOB)
            if statuses(JOB, machine).get("bad") == "quarantined":
                operator_actions.abandon(sink.store(machine), "bad", "somebody", sink.committers)
            sink.refused = frozenset()
            run_with(sink, machine, DATA, JOB)
            return True

        newer = Meeting(machine, number, act)
        machine.faults.append(newer)
        with suppress(Exception):  # it is fenced
            run_with(sink, machine, DATA, JOB)
        machine.faults.clear()
        if newer.result is None:
            break
        met += 1
        run_with(sink, machine, DATA, JOB)
        epochs = [epoch for epoch, _ in sink.commits]
        assert len(set(epochs)) == len(epochs), (number, sink.commits)
        check_exact(machine, sink)
    assert met > 30


def test_one_that_a_person_quarantines_holds_the_others_too() -> None:
    machine, sink = Machine(), OneTable(later=ALL)
    run_with(sink, machine, DATA, JOB)
    operator_actions.quarantine(sink.store(machine), "one", "somebody")
    sink.later = frozenset()
    result = run_with(sink, machine, DATA, JOB)
    assert sink.commits == []
    assert "held_by=one" in told(result)["two"]
    operator_actions.retry(sink.store(machine), "one", "somebody")
    run_with(sink, machine, DATA, JOB)
    assert [members for _, members in sink.commits] == [ALL]


def test_one_that_has_to_wait_is_the_only_one_whose_attempts_count() -> None:
    machine, sink = Machine(), OneTable(later=frozenset({"bad"}))
    for _ in range(JOB.max_attempts + 1):
        run_with(sink, machine, DATA, JOB)
    assert statuses(JOB, machine) == {"bad": "quarantined", "one": "pending", "two": "pending"}


def test_a_committer_that_breaks_is_not_asked_for_one_by_one() -> None:
    machine, sink = Machine(), OneTable(breaks=True)
    run_with(sink, machine, DATA, JOB)
    assert set(statuses(JOB, machine).values()) == {"pending"}
    sink.breaks = False
    assert run_with(sink, machine, DATA, JOB).succeeded
    assert [members for _, members in sink.commits] == [ALL]


def test_another_scope_does_not_change_what_is_sealed_and_commits_what_is_new_one_by_one() -> None:
    machine, sink = Machine(), OneTable(refused=frozenset({"bad"}))
    epoch = run_with(sink, machine, DATA, JOB).epoch
    by_dataset = World(buckets=3)
    run_with(sink, machine, source(bad=1, one=2, two=[1, 1], new=1), by_dataset)
    assert [members for _, members in sink.commits] == [{"new"}], "what is held is still"
    operator_actions.accept(sink.store(machine), "bad", "somebody")
    run_with(sink, machine, DATA, by_dataset)
    assert sink.commits[1:] == [(epoch, REST)]


def test_without_the_scope_one_that_fails_holds_nobody() -> None:
    machine, sink = Machine(), OneTable(refused=frozenset({"bad"}))
    run_with(sink, machine, DATA, World(buckets=3))
    assert {urn for _, members in sink.commits for urn in members} == REST


class FilesOfOne(ForkOperator):
    """Only one dataset has files; all go to the table."""

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return {"files": pc.starts_with(batch["value"], "one/"), "table": None}


@pytest.mark.parametrize("fork", [AllBranches(), FilesOfOne()])
def test_a_file_that_can_not_be_published_holds_the_others_before_the_table(fork: ForkOperator) -> None:
    """With a fork: files first, and one dataset's fail."""
    machine, sink = Machine(), OneTable()
    branches = (Branch(FileSink(compression="none"), "files"), Branch(sink, "table"))

    def go() -> RunResult:
        settings = JOB.begin(machine, DATA, sink=sink)
        flow = TaskFlow(settings.flow.source, branches, fork=fork)
        return run(launch, replace(settings, flow=flow, min_interval_s=1_000_000))

    machine.faults.append(fails(errno.EIO, "rename", f"{OUTPUT}/one"))
    result = go()
    assert (result.decided, sink.commits) == (True, [])
    assert set(statuses(JOB, machine).values()) == {"pending"}
    assert "held_by=one" in told(result)["two"]
    machine.restart()
    assert go().succeeded
    assert [members for _, members in sink.commits] == [ALL]


@pytest.mark.parametrize("fork", [AllBranches(), FilesOfOne()])
def test_lost_file_before_the_table_holds_back_the_group_until_it_is_released(fork: ForkOperator) -> None:
    machine, sink = Machine(), OneTable()
    branches = (Branch(FileSink(compression="none"), "files"), Branch(sink, "table"))

    def go() -> RunResult:
        settings = JOB.begin(machine, DATA, sink=sink)
        flow = TaskFlow(settings.flow.source, branches, fork=fork)
        return run(launch, replace(settings, flow=flow, min_interval_s=1_000_000))

    machine.faults.append(fails(errno.EIO, "rename", f"{OUTPUT}/one"))
    epoch = go().epoch
    machine.restart()
    for path, data in machine.paths(STAGING).items():
        if data.startswith(b"PAR1") and b"one/0/0" in data:
            machine.remove(path)
    result = go()
    assert (result.decided, sink.commits) == (False, [])
    assert statuses(JOB, machine) == {"bad": "pending", "one": "quarantined", "two": "pending"}
    assert "held_by=one" in told(result)["two"]
    operator_actions.accept(sink.store(machine), "one", "somebody")
    go()
    assert [(at, members) for at, members in sink.commits if at == epoch] == [(epoch, ALL - {"one"})]


@dataclass
class NewerInfos(OneTable):
    """A sink whose stored infos of some datasets were made by a newer version of it."""

    newer: frozenset[str] = frozenset()
    infos_version: ClassVar[int] = 2

    def upgraded(self, info: dict[str, list[str]], version: int) -> dict[str, list[str]]:
        if any(value.partition("/")[0] in self.newer for value in info["values"]):
            raise KeyError("values")
        return info


def test_member_whose_infos_cannot_be_decoded_holds_back_its_group_and_costs_no_attempt() -> None:
    machine, older = Machine(), OneTable(breaks=True)
    epoch = run_with(older, machine, DATA, JOB).epoch
    sink = NewerInfos(newer=frozenset({"bad"}))
    for _ in range(JOB.max_attempts + 1):
        result = run_with(sink, machine, DATA, JOB)
        assert sink.commits == []
        assert set(statuses(JOB, machine).values()) == {"pending"}
    assert "infos of version 1" in told(result)["bad"]
    assert "held_by=bad" in told(result)["one"]
    sink.newer = frozenset()
    assert run_with(sink, machine, DATA, JOB).succeeded
    assert sink.commits == [(epoch, ALL)]


def test_without_the_scope_a_member_whose_infos_cannot_be_decoded_stops_only_itself() -> None:
    machine, older = Machine(), OneTable(later=ALL)
    by_dataset = World(buckets=3)
    run_with(older, machine, DATA, by_dataset)
    sink = NewerInfos(newer=frozenset({"bad"}))
    run_with(sink, machine, DATA, by_dataset)
    assert {urn for _, members in sink.commits for urn in members} == REST
    assert statuses(by_dataset, machine)["bad"] == "pending"
