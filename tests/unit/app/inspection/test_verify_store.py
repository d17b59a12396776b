"""Store verification: stores written by runs pass, even after kills, and damage is reported."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec import structs

from distcommit.app.inspection.verify_store import VerifyResult, verify_store
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import Checkpoint, Fence
from distcommit.protocol.paths.store import record_name, segment_name
from distcommit.stores.history.run_records import RunRecord, recorded_epochs
from distcommit.stores.history.run_table import DatasetOutcome, decode_task_rows, encode_task_rows, outcome_row
from distcommit.stores.logs.segment_format import Segment, decode_segment, encode_segment
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from tests.simulation.world import ROOTS
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import Machine, dies, dies_at, go, source

LOG = f"{ROOTS.store}/log/bucket=00000"


def verified(machine: Machine) -> VerifyResult:
    return verify_store(WORLD.store(machine))


def problem_text(machine: Machine) -> str:
    result = verified(machine)
    assert not result.is_well
    return "; ".join(f"{problem.location}: {problem.finding}" for problem in result.problems)


@pytest.fixture
def machine() -> Machine:
    """Return a machine after two runs, of which the first was killed during its commit."""
    machine = Machine()
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/a"))
    with suppress(BaseException):
        go(WORLD, machine, source(a=3, b=1))
    machine.restart()
    go(WORLD, machine, source(a=4, b=2))
    return machine


def test_store_written_by_runs_has_no_problems(machine: Machine) -> None:
    before = machine.paths("/job")
    result = verified(machine)
    assert (result.problems, result.is_well) == ([], True)
    assert (result.logs, result.datasets, result.runs) == (2, 2, 2)
    assert result.records > 6
    assert machine.paths("/job") == before, "verification must not change a file"


def test_run_that_ends_during_verification_is_not_a_problem(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def after_another_run(fs: FileSystem, store_root: str) -> list[int]:
        go(WORLD, machine, source(a=5, b=3))
        return recorded_epochs(fs, store_root)

    monkeypatch.setattr("distcommit.app.inspection.verify_store.recorded_epochs", after_another_run)
    result = verified(machine)
    assert (result.problems, result.runs) == ([], 3)


@pytest.mark.parametrize("number", range(0, 90, 9))
def test_store_has_no_problems_after_a_run_was_killed_at_any_operation(number: int) -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    machine.faults.append(dies_at(number))
    with suppress(BaseException):
        go(WORLD, machine, source(a=3, b=[2, 1]))
    machine.restart()
    assert verified(machine).problems == []


def segments(machine: Machine) -> dict[int, Segment]:
    files = {path: data for path, data in machine.paths(LOG).items() if path.endswith(".seg")}
    return {int(path[-16:-4]): decode_segment(data, path) for path, data in files.items()}


def test_verification_reports_a_damaged_segment(machine: Machine) -> None:
    path = f"{LOG}/{segment_name(max(segments(machine)))}"
    machine.put(path, machine.paths(LOG)[path][:-3])
    assert "bucket 0: segment" in problem_text(machine)


def test_verification_reports_a_missing_segment(machine: Machine) -> None:
    numbers = sorted(segments(machine))
    machine.remove(f"{LOG}/{segment_name(numbers[-2])}")
    assert f"segments {numbers[-2]} to {numbers[-2]} are missing" in problem_text(machine)


def test_checkpoints_written_by_runs_agree_with_the_log() -> None:
    machine, checkpoints = Machine(), 0
    for number in range(1, 25):
        go(WORLD, machine, source(a=number, b=1))
        checkpoints = max(checkpoints, sum(isinstance(s.record, Checkpoint) for s in segments(machine).values()))
        assert verified(machine).problems == []
    assert checkpoints > 1


@pytest.mark.parametrize("field", ["done_epoch", "closed_epoch"])
def test_verification_reports_a_checkpoint_that_contradicts_the_log(machine: Machine, field: str) -> None:
    fold = WORLD.store(machine).bucket_log(0).refresh()
    record = fold.checkpoint()
    wrong = structs.replace(record, datasets=(structs.replace(record.datasets[0], **{field: 1}), *record.datasets[1:]))
    epoch = fold.fence_epoch
    machine.put(f"{LOG}/{segment_name(fold.number + 1)}", encode_segment(Segment(epoch, "ab" * 16, record)))
    assert verified(machine).is_well
    machine.put(f"{LOG}/{segment_name(fold.number + 1)}", encode_segment(Segment(epoch, "ab" * 16, wrong)))
    assert f"checkpoint {fold.number + 1}: a is" in problem_text(machine)


def test_verification_reports_a_bucket_fence_of_an_unknown_epoch(machine: Machine) -> None:
    number = max(segments(machine)) + 1
    machine.put(f"{LOG}/{segment_name(number)}", encode_segment(Segment(99, "ab" * 16, Fence(99, "nobody"))))
    assert "its fence is of epoch 99, above the newest epoch of the job log" in problem_text(machine)


def test_verification_reports_a_run_record_or_table_that_contradicts_the_logs(machine: Machine) -> None:
    store = WORLD.store(machine)
    epoch = store.job_log().refresh().fence_epoch
    path = f"{ROOTS.store}/runs/{record_name(epoch)}"
    data = machine.paths(f"{ROOTS.store}/runs")[path]
    record = decode_document(data, RunRecord, 1, "", path)
    assert record.totals.datasets_published > 0
    machine.put(
        path, encode_document(structs.replace(record, totals=structs.replace(record.totals, records_published=77)))
    )
    assert "its record counts 77 records published, but its table" in problem_text(machine)
    machine.put(path, encode_document(structs.replace(record, run_id="another")))
    assert "its record names run another, but its fence in the job log names run" in problem_text(machine)
    machine.put(path, data)
    tables = machine.paths(f"{ROOTS.store}/run_tables/run={record.run_id}")
    (table,) = (path for path in tables if "/drain-00000-" in path)
    drained = decode_task_rows(tables[table], table)
    never = outcome_row("never", 0, DatasetOutcome.PUBLISHED)
    machine.put(table, encode_task_rows(structs.replace(drained, rows=[*drained.rows, never])))
    assert "its table has never as published, but the newest done epoch in the log is 0" in problem_text(machine)
