"""`repair` applies the safe repairs with their commands, and changes nothing that needs an operator decision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from distcommit.app.admin.repair_problems import RepairResult, repair_job
from distcommit.app.inspection.job_status import StatusResult, read_status
from distcommit.app.inspection.problems.environment_checks import EnvironmentFindings
from distcommit.app.inspection.problems.problem_detection import find_problems
from distcommit.app.inspection.problems.recommended_commands import command_for
from distcommit.app.inspection.recorded_runs import read_runs
from distcommit.app.inspection.verify_store import verify_store
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.driver.run import run
from distcommit.stores.logs.fencing import newer_runs
from distcommit.stores.operator import operator_actions
from tests.simulation.world import SimulatedClock, World
from tests.unit.app.admin.rebuild_store.rebuilding import rebuild
from tests.unit.app.admin.rebuild_store.test_rebuild_damaged_logs import segments, tear
from tests.unit.engine.driver.machines import Machine, audit, dies, launch, source, states

WORLD = World(buckets=1, max_attempts=1)
TREE = {
    "job": "job",
    "source": {"type": "kafka", "brokers": "b:1", "topics": ["x"]},
    "paths": {"store": "s", "staging": "t", "output": "o"},
}
FOLDERS = JobFolders(parse_config(TREE, Path("/jobs/job.yaml")), Path("/jobs/job.yaml"), ())
FIRST, SECOND, LAST = source(a=[3], b=2), source(a=[6], b=4), source(a=[8], b=5)


def inspect(machine: Machine) -> StatusResult:
    store = WORLD.store(machine)
    status = read_status(store)
    runs = read_runs(store, SimulatedClock())
    return msgspec.structs.replace(
        status, problems=find_problems(status, runs, command_for(FOLDERS), EnvironmentFindings(newer=newer_runs(store)))
    )


def repair(machine: Machine, *, dry_run: bool = False) -> RepairResult:
    def abandon(urns: Sequence[str]) -> str:
        for urn in urns:
            operator_actions.abandon(WORLD.store(machine), urn, "person")
        return ""

    def rebuilt(_: Sequence[str]) -> str:
        return "; ".join(rebuild(WORLD, machine).problems)

    def recover(_: Sequence[str]) -> str:
        return "" if WORLD.recover(machine, SECOND).succeeded else "not all of it"

    return repair_job(
        lambda: inspect(machine),
        lambda: verify_store(WORLD.store(machine)),
        {"rebucket": lambda _: "", "rebuild": rebuilt, "abandon": abandon, "recover": recover},
        dry_run=dry_run,
    )


def half_published() -> Machine:
    machine = Machine()
    WORLD.run(machine, FIRST)
    machine.faults.append(dies("rename", "/output/b/", nth=1))
    with suppress(BaseException):
        run(launch, WORLD.begin(machine, SECOND))
    machine.restart()
    return machine


def assert_exact_after_the_last_run(machine: Machine) -> None:
    WORLD.run(machine, LAST)
    assert audit(WORLD, machine).exact
    assert WORLD.violation(machine, LAST, {}) == ""


def test_repair_replays_sealed_sequences() -> None:
    machine = half_published()
    before = machine.paths("/job")
    shown = repair(machine, dry_run=True)
    assert [row.outcome for row in shown.rows if row.outcome] == ["would be"]
    assert machine.paths("/job") == before
    result = repair(machine)
    assert [row.outcome for row in result.rows if row.id == "COMMIT_PENDING"] == ["done"]
    assert all(state.status is DatasetStatus.IDLE for state in states(WORLD, machine).values())
    assert repair(machine).rows == [] or not any(row.outcome for row in repair(machine).rows)
    assert_exact_after_the_last_run(machine)


def test_repair_rebuilds_a_damaged_log_first_and_completes_the_rest() -> None:
    machine = half_published()
    tear(machine, segments(machine)[-1], gone=False)
    result = repair(machine)
    assert [row.outcome for row in result.rows if row.id == "FILE_UNREADABLE"] == ["done"]
    assert not result.problems_count, result.problems
    assert_exact_after_the_last_run(machine)


@pytest.mark.parametrize("nth", range(1, 30, 4))
def test_repair_killed_at_any_write_completes_when_repeated(nth: int) -> None:
    machine = half_published()
    tear(machine, segments(machine)[-1], gone=False)
    machine.faults.append(dies("rename", "/job/", nth=nth))
    with suppress(BaseException):
        repair(machine)
    machine.restart()
    result = repair(machine)
    assert not [row.outcome for row in result.rows if row.outcome.startswith("failed")], result
    assert_exact_after_the_last_run(machine)


def test_repair_completes_an_unfinished_abandon_and_leaves_undecided_sequences() -> None:
    machine = half_published()
    urn = next(state.dataset_urn for state in states(WORLD, machine).values() if state.sequence)
    operator_actions.quarantine(WORLD.store(machine), urn, "person")
    before = machine.paths("/job/output")
    result = repair(machine)
    assert not result.is_well
    assert any(problem.command.startswith("distcommit dataset release") for problem in result.remaining)
    assert all(row.outcome == "" for row in result.rows if urn in row.finding)
    assert states(WORLD, machine)[urn].status is DatasetStatus.QUARANTINED
    assert machine.paths("/job/output").keys() >= before.keys()
    machine.faults.append(dies("unlink", "/staging/", nth=1))
    with suppress(BaseException):
        operator_actions.abandon(WORLD.store(machine), urn, "person")
    machine.restart()
    assert states(WORLD, machine)[urn].status is DatasetStatus.REVOKING
    result = repair(machine)
    assert [row.outcome for row in result.rows if row.id == "ABANDON_UNFINISHED"] == ["done"]
    assert_exact_after_the_last_run(machine)


def test_failed_repair_is_reported_with_the_reason() -> None:
    machine = half_published()
    tear(machine, segments(machine)[-1], gone=False)
    for path in machine.paths("/job/output"):
        if path.startswith("/job/output/b/"):
            machine.remove(path)
            machine.put(path, b"no file of ours")
    result = repair(machine)
    (failed,) = [row for row in result.rows if row.outcome.startswith("failed: ")]
    assert "footer" in failed.outcome
    assert not result.is_well
