"""Commit failures count against their own dataset, however many fail, unless other output can't be published either."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from distcommit.app.inspection.job_status import DatasetStatusRow, NextRun, read_status
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    CommitterContext,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.records.log_records import Postponed
from distcommit.engine.committing.delete_probes_and_task_output import RemoveProbes
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.run import RunResult
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Operation
from tests.simulation.world import ROOTS, World
from tests.unit.engine.committing.situations import check_recovery, sealed_but_not_published
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    NOTHING,
    OUTPUT,
    Machine,
    audit,
    fails,
    go,
    source,
    states,
    statuses,
    with_folders,
)
from tests.unit.engine.driver.test_custom_sinks import MemoryCommitter, MemorySink, answer_for, raised, run_with

WORLD = World()
DATA = source(a=3, b=2, c=1)
PROBE = "/.probe-"


def rows(machine: Machine, world: World = WORLD) -> dict[str, DatasetStatusRow]:
    """Return the problems that `status` reports."""
    return {row.dataset: row for row in read_status(world.store(machine)).datasets}


def reasons(result: RunResult) -> dict[str, tuple[str, str]]:
    return {reason.subject: (reason.kind, reason.text) for reason in result.reasons.entries}


def all_fail(machine: Machine) -> None:
    """Build faults that make each dataset's own folder unwritable. Everything else can be published."""
    for urn in DATA.datasets:
        machine.faults.append(fails(errno.EACCES, "rename", f"{OUTPUT}/{urn}/"))


def output_is_out(machine: Machine) -> None:
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/"))


def disk_is_full(machine: Machine) -> None:
    """Build faults of a full disk: renames work where their folders need no space, and no bytes can be written."""
    all_fail(machine)
    machine.faults.append(fails(errno.ENOSPC, "write", PROBE))


def sync_is_out(machine: Machine) -> None:
    all_fail(machine)
    machine.faults.append(fails(errno.EIO, "fsync", PROBE))


OUTAGES = [output_is_out, disk_is_full, sync_is_out]


def test_all_sequences_of_a_bucket_that_fail_permanently_are_quarantined_and_can_be_released() -> None:
    machine = Machine()
    sealed_but_not_published(machine, DATA)
    for attempt in (1, 2, 3):
        all_fail(machine)
        result = go(WORLD, machine, NOTHING)
        machine.restart()
        assert {len(state.tried_epochs) for state in states(WORLD, machine).values()} == {attempt}
        assert {kind for kind, _ in reasons(result).values()} <= {
            "STORAGE_FAILED",
            "STORAGE_REFUSED",
            "skipped, pending",
            "skipped, quarantined",
        }
    assert statuses(WORLD, machine) == {"a": "quarantined", "b": "quarantined", "c": "quarantined"}
    for urn, row in rows(machine).items():
        assert "Permission denied (EACCES)" in row.reason
        assert f"{OUTPUT}/{urn}/" in row.reason
        assert (row.outage, row.next_run, row.failed_runs) == (False, NextRun.NOTHING, 3)
        operator_actions.retry(WORLD.store(machine), urn, "person")
    check_recovery(machine, DATA)


@pytest.mark.parametrize("outage", OUTAGES)
def test_outage_over_many_runs_counts_no_attempt_and_is_reported_by_run_and_status(
    outage: Callable[[Machine], None],
) -> None:
    machine = Machine()
    WORLD.store(machine)
    with_folders(machine, *DATA.datasets)
    for number in range(WORLD.max_attempts + 2):
        outage(machine)
        result = go(WORLD, machine, DATA if number == 0 else NOTHING)
        machine.restart()
        assert not result.succeeded
        outages = [reason for reason in result.reasons.entries if reason.kind == "outage"]
        assert {reason.subject for reason in outages} == set(DATA.datasets)
        for row in rows(machine).values():
            assert (row.status, row.failed_runs, row.outage, row.next_run) == ("pending", 0, True, NextRun.REPLAYS)
            assert row.reason == outages[0].text
            assert "a file of 64 KB cannot be written" in row.reason
    assert audit(WORLD, machine).pending
    check_recovery(machine, DATA)
    assert all(not row.outage and not row.reason for row in rows(machine).values())


def test_one_probe_covers_all_buckets_of_a_task() -> None:
    world, machine = World(buckets=4), Machine()
    sealed_but_not_published(machine, DATA, world)
    all_fail(machine)
    go(world, machine, NOTHING)
    assert len([call for call in machine.made if call.kind == "create" and PROBE in call.path]) == 1
    assert {state.status.value for state in states(world, machine).values()} == {"pending"}
    assert [len(state.tried_epochs) for state in states(world, machine).values()] == [1, 1, 1]


def test_run_that_cannot_publish_its_sealed_sequences_reports_why_and_counts_no_attempt() -> None:
    machine = Machine()
    WORLD.store(machine)
    with_folders(machine, *DATA.datasets).faults.append(fails(errno.EACCES, "rename", f"{OUTPUT}/b/"))
    go(WORLD, machine, DATA)
    row = rows(machine)["b"]
    assert (row.status, row.failed_runs, row.outage) == ("pending", 0, False)
    assert "Permission denied (EACCES)" in row.reason
    assert f"{OUTPUT}/b/" in row.reason


def test_known_outage_is_not_recorded_again_by_each_run() -> None:
    machine = Machine()
    WORLD.store(machine)
    for _ in range(4):
        output_is_out(machine)
        go(WORLD, machine, DATA)
        machine.restart()
    segments = [data for path, data in machine.paths("/job/store/log/bucket=00000").items() if path.endswith(".seg")]
    assert [isinstance(decode_segment(data, "").record, Postponed) for data in segments].count(True) == 1


def test_result_reports_an_outage_that_the_log_cannot_record() -> None:
    machine = Machine()
    sealed_but_not_published(machine, DATA)
    settings = WORLD.begin(machine, NOTHING)
    output_is_out(machine)

    def log_is_out_from_the_probe_on(operation: Operation) -> None:
        if operation.kind == "create" and PROBE in operation.path:
            machine.faults.append(fails(errno.ENOSPC, "create", BUCKET_LOG))

    machine.faults.append(log_is_out_from_the_probe_on)
    report = recover_partition(settings, 0).report
    assert {(reason.subject, reason.kind) for reason in report.reasons} >= {(urn, "outage") for urn in DATA.datasets}
    machine.restart()
    check_recovery(machine, DATA)


# -- sinks


@dataclass
class ProbedSink(MemorySink):
    """A sink whose committer runs `probing` when its probe is called."""

    probing: Callable[[], None] = lambda: None
    probes: list[int] = field(default_factory=list)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        self.opening()
        return _ProbedCommitter(self)


@dataclass
class _ProbedCommitter(MemoryCommitter):
    sink: ProbedSink

    def probe(self) -> None:
        self.sink.probes.append(1)
        self.sink.probing()

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return super().commit(requests)


def not_now(request: CommitRequest) -> CommitOutcome:
    return RetryLater("the table is locked")


def test_working_sink_that_rejects_all_datasets_counts_an_attempt_for_each() -> None:
    machine, sink = Machine(), ProbedSink(answers=not_now)
    run_with(sink, machine, source(a=1, b=1))
    for attempt in (1, 2, 3):
        run_with(sink, machine, NOTHING)
        assert [len(state.tried_epochs) for state in states(WORLD, machine).values()] == [attempt] * 2
    assert statuses(WORLD, machine) == {"a": "quarantined", "b": "quarantined"}


@pytest.mark.parametrize("one", [True, False])
def test_sink_whose_probe_fails_is_an_outage_however_few_datasets_fail(one: bool) -> None:
    answers = answer_for("a", RetryLater("gone")) if one else not_now
    machine, sink = Machine(), ProbedSink(answers=answers, probing=raised(ConnectionError("no route")))
    run_with(sink, machine, source(a=1, b=1))
    for _ in range(WORLD.max_attempts + 1):
        result = run_with(sink, machine, NOTHING)
        assert reasons(result)["a"][0] == "skipped, pending"
        assert any(r.kind == "outage" and "no route" in r.text for r in result.reasons.entries)
    row = rows(machine)["a"]
    assert (row.status, row.failed_runs, row.outage) == ("pending", 0, True)
    sink.probing, sink.answers = (lambda: None), (lambda request: None)
    run_with(sink, machine, NOTHING)
    assert statuses(WORLD, machine) == {"a": "idle", "b": "idle"}


def test_each_failure_of_a_sink_without_a_probe_counts_for_its_own_dataset() -> None:
    machine, sink = Machine(), MemorySink(answers=not_now)
    run_with(sink, machine, source(a=1, b=1))
    for _ in range(WORLD.max_attempts):
        run_with(sink, machine, NOTHING)
    assert statuses(WORLD, machine) == {"a": "quarantined", "b": "quarantined"}


def test_status_reports_why_the_sequence_of_another_sink_stays_pending() -> None:
    machine = Machine()
    run_with(MemorySink(answers=not_now), machine, source(a=1))
    go(WORLD, machine, NOTHING)
    row = rows(machine)["a"]
    assert "a job file with the sink 'memory'" in row.reason
    assert (row.outage, row.failed_runs) == (False, 0)


def test_committer_that_dies_in_its_probe_harms_no_dataset() -> None:
    """tests/crash/test_killed_probe.py tests the same with real processes."""
    machine = Machine()
    sealed_but_not_published(machine, DATA)
    machine.put(f"{OUTPUT}{PROBE}0-{'0' * 32}", b"")
    machine.put(f"/job/staging{PROBE}0-{'1' * 32}", b"")
    assert audit(WORLD, machine).unknown_files == []
    check_recovery(machine, DATA)
    assert [path for path in (*machine.paths(OUTPUT), *machine.paths("/job/staging")) if PROBE in path] == []


def test_deleted_probe_files_do_not_return_after_a_power_loss() -> None:
    machine = Machine()
    sealed_but_not_published(machine, DATA)
    for root in (ROOTS.output, ROOTS.staging):
        machine.put(f"{root}{PROBE}0-{'0' * 32}", b"")
    machine.syncfs("/")
    RemoveProbes.answer_batch([RemoveProbes(StepContext(WORLD.store(machine).fs, ROOTS.staging, ROOTS.output), 0)])
    images = [*machine.after_power_loss(random.Random(1), 7, 8)]
    assert images
    assert [path for image in images for _, path, _ in image.files() if PROBE in path] == []
