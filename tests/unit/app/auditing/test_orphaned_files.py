"""Task output that no sequence needs: the audit lists it, and does not fail on files that the next run sweeps."""

from __future__ import annotations

import pytest

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.records.log_records import DatasetStatus
from distcommit.protocol import next_log_record
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import ROOTS, World
from tests.unit.engine.driver.machines import BUCKET_LOG, STAGING, Machine, audit, go, states

WORLD = World(buckets=2)
GOOD = ModelDataset({"0": 3})
FAILING = ModelSource({"a": ModelDataset({"0": 3, "1": 3}, fails=frozenset({"1"})), "b": GOOD})
REPAIRED = ModelSource({"a": ModelDataset({"0": 3, "1": 3}), "b": GOOD})


def after_a_failure(world: World = WORLD) -> Machine:
    machine = Machine()
    assert not go(world, machine, FAILING).succeeded
    return machine


def leftover_counts(result: AuditResult) -> tuple[bool, int, int]:
    return result.exact, result.sweepable_files_count, result.orphaned_files_count


def test_orphaned_files_of_a_failed_dataset_keep_the_audit_exact_and_the_next_run_sweeps_them() -> None:
    machine = after_a_failure()
    staged = machine.paths(STAGING)
    assert staged
    result = audit(WORLD, machine)
    assert (result.exact, result.passed, result.orphaned_files) == (True, True, [])
    assert result.sweepable_files_count == len(result.sweepable_files) == 2, (
        "each partition must have one orphaned folder"
    )
    assert {path.removeprefix(f"{STAGING}/").rpartition("/")[0] for path in staged} <= set(result.sweepable_files)
    go(WORLD, machine, ModelSource({}))
    assert machine.paths(STAGING) == {}
    assert leftover_counts(audit(WORLD, machine)) == (True, 0, 0)


def test_next_run_sweeps_exactly_the_orphaned_files_that_the_audit_lists() -> None:
    machine = after_a_failure()
    (folder,) = {path.rpartition("/")[0].rpartition("/")[0] for path in machine.paths(STAGING)}
    bucket = folder.rpartition("/")[2]
    never = [
        f"{STAGING}/x",
        f"{STAGING}/7/{bucket}/a.b/x",
        f"{STAGING}/foreign/below/x",
        f"{folder}/x",
        f"{folder.rpartition('/')[0]}/x",
        f"{folder.rpartition('/')[0]}/bucket=00002/a.b/x",
        f"{STAGING}/0000000099/{bucket}/a.b/x",
    ]
    for path in never:
        machine.put(path, b"?")
    before = audit(WORLD, machine)
    assert leftover_counts(before) == (False, 2, len(never))
    named = {line.partition(": ")[0] for line in before.orphaned_files}
    assert named == {path.removeprefix(f"{STAGING}/").removesuffix("/x" if "99/" in path else "") for path in never}
    go(WORLD, machine, ModelSource({}))
    assert set(machine.paths(STAGING)) == set(never)
    assert leftover_counts(audit(WORLD, machine)) == (False, 0, len(never))


@pytest.mark.parametrize("number", [0, 1])
def test_next_run_sweeps_only_staging_of_older_epochs(number: int) -> None:
    machine = after_a_failure()
    upcoming = next_epoch(machine)
    path = f"{STAGING}/{upcoming - 1 + number:010d}/bucket=00000/a.b/x"
    machine.put(path, b"?")
    result = audit(WORLD, machine)
    assert leftover_counts(result) == (not number, 3 - number, number)
    assert WORLD.begin(machine, REPAIRED).epoch == upcoming
    if number:
        assert result.orphaned_files[0].endswith(f"the next run, epoch {upcoming}, deletes older attempts only")


def next_epoch(machine: Machine) -> int:
    """Return the epoch that the next run would have."""
    return next_log_record.next_epoch(WORLD.store(machine).job_log().refresh())


def test_files_of_a_pending_sequence_are_not_listed_as_orphaned() -> None:
    machine = Machine()
    go(WORLD, machine, ModelSource({"b": ModelDataset({"0": 1})}))
    machine.faults.append(lambda operation: refuse(operation.kind, operation.path))
    go(WORLD, machine, FAILING)
    machine.faults.clear()
    assert DatasetStatus.PENDING in {state.status for state in states(WORLD, machine).values()}
    result = audit(WORLD, machine)
    staged = {path.removeprefix(f"{STAGING}/").rpartition("/")[0] for path in machine.paths(STAGING)}
    needed = staged - set(result.sweepable_files)
    assert needed
    assert not result.exact, "a pending sequence must prevent an exact audit"
    go(WORLD, machine, REPAIRED)
    assert leftover_counts(audit(WORLD, machine)) == (True, 0, 0)


def refuse(kind: str, path: str) -> None:
    if kind in ("rename", "link") and "/job/output/b/" in path:
        raise PermissionError(13, "no", path)


def test_no_staged_file_is_called_orphaned_if_bucket_logs_are_unreadable() -> None:
    machine = after_a_failure()
    for path in machine.paths(ROOTS.store):
        if BUCKET_LOG in path:
            machine.put(path, b"?")
    result = audit(WORLD, machine)
    assert (result.exact, len(result.unreadable), *leftover_counts(result)[1:]) == (False, 2, 0, 0)


def test_unreadable_job_log_is_reported() -> None:
    machine = after_a_failure()
    store = WORLD.store(machine)
    for path in machine.paths(store.job_log().folder):
        machine.put(path, b"?")
    result = audit_store(store, FAILING.provenance, deep=False)
    assert not result.exact
    assert result.unreadable[0].startswith("job log: ")


def test_spool_of_a_streaming_query_is_not_reported_as_orphaned() -> None:
    machine = Machine()
    go(WORLD, machine, REPAIRED)
    machine.put(f"{STAGING}/batches/query/1-2/rows", b"?")
    assert leftover_counts(audit(WORLD, machine)) == (True, 0, 0)


def test_staging_of_another_generation_is_listed_as_orphaned_and_swept() -> None:
    machine, resized = after_a_failure(), World(buckets=2, resized=True)
    rebucket(resized.store(machine), Move(1), "moves", lambda step: None)
    machine.put(f"{STAGING}/0000000001/bucket=00009/a.b/x", b"?")
    before = audit(resized, machine)
    assert leftover_counts(before) == (True, 3, 0)
    assert "0000000001/bucket=00009/a.b" in before.sweepable_files
    go(resized, machine, ModelSource({}))
    assert leftover_counts(audit(resized, machine)) == (True, 0, 0)
    assert machine.paths(STAGING) == {}


def test_open_marker_of_an_attempt_is_swept_with_its_folder() -> None:
    machine = after_a_failure()
    (folder, *_) = sorted({path.rpartition("/")[0] for path in machine.paths(STAGING)})
    machine.put(f"{folder}.open", b"")
    result = audit(WORLD, machine)
    assert (result.exact, result.orphaned_files) == (True, [])
    assert f"{folder}.open".removeprefix(f"{STAGING}/") in result.sweepable_files
    go(WORLD, machine, ModelSource({}))
    assert machine.paths(STAGING) == {}
