"""Job-level commits to a grouped target: one commit of a run contains all members of a group, or none."""

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
from tests.unit.engine.driver.test_custom_sinks import MemorySink, run_with

JOB = World(buckets=3, job_level=True)
DATA = source(bad=1, one=2, two=[1, 1])
ALL = frozenset(DATA.datasets)
REST = ALL - {"bad"}


@dataclass
class OneTable(MemorySink):
    """A sink with one table for all datasets. `commits` has the datasets that were new in each commit, with its epoch.
    Datasets in `refused` fail permanently; those in `later` must wait.
    """

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

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
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
    return {reason.subject: reason.text for reason in result.reasons.entries}


def test_all_datasets_of_a_run_are_one_commit() -> None:
    machine, sink = Machine(), OneTable()
    result = run_with(sink, machine, DATA, JOB)
    assert result.succeeded
    assert sink.commits == [(result.epoch, ALL)]
    check_exact(machine, sink)


@pytest.mark.thorough
def test_run_killed_anywhere_has_committed_all_datasets_of_its_group_at_once_or_none() -> None:
    """Kill the run, then the next run where the first was killed, and so on: three kills in all, each later than the
    one before.
    """
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
def test_permanently_failed_dataset_holds_the_others_until_it_is_released(how: Release) -> None:
    machine, sink = Machine(), OneTable(refused=frozenset({"bad"}))
    result = run_with(sink, machine, DATA, JOB)
    epoch = result.epoch
    assert (result.decided, sink.commits) == (True, [])
    held = {"bad": "quarantined", "one": "pending", "two": "pending"}
    assert statuses(JOB, machine) == held
    assert "its rows are gone" in told(result)["bad"]
    assert "held_by=bad" in told(result)["one"]
    for _ in range(JOB.max_attempts + 2):  # no attempt of the others: they wait without limit
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
            assert sink.commits == [(epoch, REST), (result.epoch, {"bad"})], "the released dataset was read again"
    if how is not Release.ACCEPT:
        check_exact(machine, sink)


@pytest.mark.thorough
def test_group_killed_anywhere_with_one_failed_member_commits_nothing_until_its_release() -> None:
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


@pytest.mark.thorough
def test_zombie_commits_all_or_nothing_whenever_it_continues() -> None:
    """Between any two calls of the older run a newer one runs, an operator abandons the failed dataset, and a third run
    follows.
    """
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
        with suppress(Exception):  # the run is fenced
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


def test_dataset_quarantined_by_an_operator_holds_the_others_too() -> None:
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


def test_only_the_dataset_that_must_wait_counts_attempts() -> None:
    machine, sink = Machine(), OneTable(later=frozenset({"bad"}))
    for _ in range(JOB.max_attempts + 1):
        run_with(sink, machine, DATA, JOB)
    assert statuses(JOB, machine) == {"bad": "quarantined", "one": "pending", "two": "pending"}


def test_failing_group_committer_is_not_retried_dataset_by_dataset() -> None:
    machine, sink = Machine(), OneTable(breaks=True)
    run_with(sink, machine, DATA, JOB)
    assert set(statuses(JOB, machine).values()) == {"pending"}
    sink.breaks = False
    assert run_with(sink, machine, DATA, JOB).succeeded
    assert [members for _, members in sink.commits] == [ALL]


def test_changed_scope_keeps_sealed_sequences_and_commits_new_ones_one_by_one() -> None:
    machine, sink = Machine(), OneTable(refused=frozenset({"bad"}))
    epoch = run_with(sink, machine, DATA, JOB).epoch
    by_dataset = World(buckets=3)
    run_with(sink, machine, source(bad=1, one=2, two=[1, 1], new=1), by_dataset)
    assert [members for _, members in sink.commits] == [{"new"}], "the held sequence is still held"
    operator_actions.accept(sink.store(machine), "bad", "somebody")
    run_with(sink, machine, DATA, by_dataset)
    assert sink.commits[1:] == [(epoch, REST)]


def test_failed_dataset_without_the_scope_holds_no_others() -> None:
    machine, sink = Machine(), OneTable(refused=frozenset({"bad"}))
    run_with(sink, machine, DATA, World(buckets=3))
    assert {urn for _, members in sink.commits for urn in members} == REST


class FilesOfOne(ForkOperator):
    """A job in which one dataset has files, and all go to the table."""

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        return {"files": pc.starts_with(batch["value"], "one/"), "table": None}


@pytest.mark.parametrize("fork", [AllBranches(), FilesOfOne()])
def test_file_that_cannot_be_published_holds_the_others_before_the_table(fork: ForkOperator) -> None:
    """The job forks, files come first, and the files of one dataset fail."""
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
    """A sink of which a newer version wrote the stored infos of some datasets."""

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
