"""Changes of the number of buckets are complete and exact, whatever intervenes and wherever the command dies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from distcommit.app.admin.rebuild_store import accept_store, plan_rebuild, rebuild_store, stored_states
from distcommit.app.inspection.job_status import read_status
from distcommit.core.errors import (
    ConfigurationError,
    ConflictError,
    CorruptError,
    FencedError,
    StaleStoreError,
)
from distcommit.core.records.log_records import Checkpoint, DatasetState
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol import next_log_record
from distcommit.protocol.paths.shared_names import bucket_number
from distcommit.protocol.paths.store import SEGMENT_SUFFIX, log_folder
from distcommit.stores.history.retention import DEFAULT_RETENTION
from distcommit.stores.logs.fencing import fence_bucket, fence_job, require_fence
from distcommit.stores.logs.rebucket_logs import Move, Rebucketed, rebucket
from distcommit.stores.logs.segment_format import Segment, encode_segment
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore, open_store
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.casts.parts import new_run
from tests.simulation.explore import program_violation
from tests.simulation.programs.parts import Program, half_done
from tests.simulation.programs.rebucket import REBUCKET
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.engine.driver.machines import Machine, Meeting, dies, dies_at

BEFORE, AFTER = World(buckets=2), World(buckets=3)
ANY = World(buckets=2, resized=True)
FIRST = ModelSource({urn: ModelDataset({"0": 1}) for urn in "acg"})
SECOND = ModelSource({urn: ModelDataset({"0": 2}) for urn in "acg"})
BACK = Watermark({"0": 0})


def after_first_run() -> Machine:
    """Return a job of two buckets after its first run."""
    machine = Machine()
    BEFORE.run(machine, FIRST)
    return machine


def rebucketed(machine: Machine, buckets: int = 3, run_id: str = "moves") -> Rebucketed:
    return rebucket(ANY.store(machine), Move(buckets), run_id, lambda step: None)


def final_violation(machine: Machine) -> str:
    """Return the violation after recovery, a repeated rebucket and another run."""
    if ANY.store(machine).job_log().refresh().under_way is None:
        ANY.recover(machine, SECOND)
    rebucketed(machine, run_id="again")
    before = ANY.watermarks(machine)
    ANY.run(machine, SECOND)
    return AFTER.violation(machine, SECOND, before)


def test_states_continue_in_the_requested_number_of_logs_and_the_next_run_is_exact() -> None:
    machine = after_first_run()
    before, steps = stored_states(BEFORE.store(machine)), list[str]()
    result = rebucket(BEFORE.store(machine), Move(3), "moves", steps.append)
    assert (result.epoch, result.datasets, result.is_resumed) == (5, 3, False)
    assert steps == ["fence", "end logs", "begin logs", "switch"]
    store = AFTER.store(machine)
    assert store.job_log().refresh().has_ended
    assert (store.generation, store.buckets, result.store.generation) == (1, 3, 1)
    assert stored_states(store) == before
    assert [store.bucket_log(bucket).folder for bucket in (0, 2)] == [
        "/job/store/log/generations/00001/bucket=00000",
        "/job/store/log/generations/00001/bucket=00002",
    ]
    assert final_violation(machine) == ""
    assert rebucketed(machine, 1).store.generation == 2
    assert rebucketed(machine, 1).epoch == 0, "a repeated move must do nothing"
    assert ANY.store(machine).generation == 2


def test_first_segments_of_the_new_logs_are_deterministic() -> None:
    machine = after_first_run()
    store = rebucketed(machine).store
    ended = [BEFORE.store(after_first_run()).bucket_log(bucket).refresh() for bucket in range(2)]
    checkpoints: list[Checkpoint] = []
    for bucket in range(3):
        ((number, segment),) = store.bucket_log(bucket).segments()
        assert number == 1
        assert isinstance(segment, Segment)
        assert isinstance(segment.record, Checkpoint)
        assert (segment.record.fence_epoch, segment.record.fence_run_id) == (5, "moves")
        checkpoints.append(segment.record)
    for fold in ended:
        fold.fence_epoch, fold.fence_run_id = 5, "moves"
    assert checkpoints == next_log_record.beginnings(reversed(ended), 3, store.bucket_of)
    assert sorted(state.dataset_urn for checkpoint in checkpoints for state in checkpoint.datasets) == ["a", "c", "g"]


@pytest.mark.thorough
@pytest.mark.parametrize("program", REBUCKET, ids=lambda program: str(program.name))
def test_rebucket_killed_at_any_operation_is_completed_by_the_same_command(program: Program) -> None:
    """Try each third operation; the crash explorer tries all of them, and power losses."""
    begin = program.find()
    for number in range(0, 1000, 3):
        machine = begin.after_kill()
        machine.gate = dies_at(number)
        try:
            program.act(machine)
        except Crashed:
            assert program_violation(program, machine.after_kill()) == "", number
        else:
            break
    assert number == 0 if program.name.endswith("-refused") else number > 20


def set_back(machine: Machine, zombie: RunSettings | None) -> None:
    operator_actions.set_watermark(ANY.store(machine), "a", BACK, "person")
    machine.put("/acknowledged", b"")


OTHERS: dict[str, Callable[[Machine, RunSettings | None], object]] = {
    "run": lambda machine, zombie: ANY.run(machine, SECOND),
    "zombie": lambda machine, zombie: zombie and ingest_partition(zombie, 0),
    "person": set_back,
    "another": lambda machine, zombie: rebucketed(machine, run_id="another"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("command", OTHERS)
def test_concurrent_command_during_a_rebucket_is_refused_or_takes_full_effect(command: str) -> None:
    """The other command runs completely before each record that the rebucket puts."""
    refused = number = 0
    for number in range(50):
        machine = after_first_run()
        zombie = new_run(machine, BEFORE, SECOND) if command == "zombie" else None
        interventions: list[str] = []

        def intervene(
            machine: Machine = machine, zombie: RunSettings | None = zombie, interventions: list[str] = interventions
        ) -> None:
            interventions.append("")
            with suppress(ConflictError):
                OTHERS[command](machine, zombie)

        machine.faults.append(before_record(machine, number, intervene))
        try:
            rebucketed(machine)
        except ConflictError:
            refused += 1
        machine.faults.clear()
        if not interventions:
            break
        if command == "person":
            rebucketed(machine, run_id="again")
            was_acknowledged = "/acknowledged" in machine.paths("")
            assert (stored_states(AFTER.store(machine))["a"].watermark == BACK) is was_acknowledged, number
        else:
            assert final_violation(machine) == "", number
    assert 8 < number < 50
    assert (refused > 0) is (command in ("run", "another"))


def before_record(machine: Machine, number: int, act: Callable[[], object]) -> Callable[[Operation], None]:
    """Call `act`, without any fault, before the record with this number (from 0) is put."""
    remaining = [number]

    def fault(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.endswith(SEGMENT_SUFFIX):
            remaining[0] -= 1
            if remaining[0] == -1:
                faults, machine.faults = machine.faults, []
                act()
                machine.faults = faults

    return fault


def test_rebucket_with_a_pending_dataset_is_refused_and_changes_nothing() -> None:
    machine = Machine()
    half_done(machine, World())
    before = machine.paths(ROOTS.store)
    with pytest.raises(ConflictError, match="commits are unfinished") as caught:
        rebucketed(machine)
    assert caught.value.found == "a (pending)"
    assert machine.paths(ROOTS.store) == before


def test_sequence_sealed_just_before_the_fence_stops_the_rebucket() -> None:
    machine = after_first_run()
    zombie = new_run(machine, BEFORE, SECOND)
    zombie_seals = partial(dying, machine, zombie)
    machine.faults.append(Meeting(machine, 0, zombie_seals))
    with pytest.raises(ConflictError, match="commits are unfinished"):
        rebucketed(machine)
    fold = ANY.store(machine).job_log().refresh()
    assert (fold.under_way, fold.fence_run_id) == (None, "moves")
    assert final_violation(machine) == ""


def dying(machine: Machine, zombie: RunSettings) -> None:
    """Run a task that dies after it has sealed."""
    machine.faults.append(dies("rename", "/job/output/"))
    with suppress(Crashed):
        ingest_partition(zombie, 0)
    machine.restart()


def interrupted_rebucket() -> Machine:
    """Return a machine whose rebucket command died after one log had ended."""
    machine = after_first_run()
    dies_half_way(machine)
    store = BEFORE.store(machine)
    assert [store.bucket_log(bucket).refresh().moved_to for bucket in range(2)] == [1, 0]
    return machine


def dies_half_way(machine: Machine) -> None:
    machine.faults.append(dies("rename", "/log/bucket=00001", 2))
    with suppress(Crashed):
        rebucketed(machine)
    machine.restart()


def test_interrupted_rebucket_blocks_every_other_change_of_the_job() -> None:
    machine = interrupted_rebucket()
    store, before = BEFORE.store(machine), machine.paths("/job")
    urn = next(iter(store.bucket_log(0).refresh().datasets))
    commands: list[Callable[[], object]] = [
        lambda: BEFORE.run(machine, SECOND),
        lambda: BEFORE.recover(machine, SECOND),
        lambda: fence_job(store, "LogCommitStepStore"),
        lambda: operator_actions.set_watermark(store, urn, BACK, "person"),
        lambda: operator_actions.set_watermarks(store, {urn: BACK}, {urn: None}, "person"),
        lambda: operator_actions.quarantine(store, urn, "person"),
        lambda: operator_actions.accept(store, urn, "person"),
        lambda: operator_actions.retry_all(store, "person"),
        lambda: accept_store(store, "rebuild", "person"),
        lambda: rebuild_store(store, plan_rebuild(store, {}, accept_gaps=False), "r", "person", accept_gaps=False),
    ]
    for command in commands:
        with pytest.raises(ConflictError, match=r"distcommit store rebucket JOB.yaml --buckets 3") as caught:
            command()
        assert caught.value.found == "unfinished generation 1, of 3 buckets"
    with pytest.raises(ConflictError, match="another change of the number of buckets or of settings") as caught:
        rebucketed(machine, 4)
    assert (caught.value.expected, caught.value.found) == ("3 buckets", "4 buckets")
    assert machine.paths("/job") == before
    status = read_status(store)
    assert (status.generation, status.buckets, status.moving_to, len(status.datasets)) == (0, 2, 3, 3)
    result = rebucketed(machine)
    assert (result.is_resumed, result.store.generation) == (True, 1)
    assert final_violation(machine) == ""


def test_store_opened_before_a_rebucket_must_be_reopened() -> None:
    machine = after_first_run()
    old = BEFORE.store(machine)
    rebucketed(machine)
    before = machine.paths("/job")
    commands: list[Callable[[], object]] = [
        lambda: fence_job(old, "run"),
        lambda: operator_actions.set_watermark(old, "a", BACK, "person"),
        lambda: operator_actions.set_watermark(old, "a", old.bucket_log(1).refresh().state_of("a").watermark, "person"),
        lambda: operator_actions.set_watermarks(old, {"a": BACK}, {"a": Watermark({"0": 1})}, "person"),
        lambda: operator_actions.retry_all(old, "person"),
        lambda: rebucket(old, Move(3), "again", lambda step: None),
    ]
    for command in commands:
        with pytest.raises(ConflictError, match="opens the store again"):
            command()
    log = old.bucket_log(0, 7)
    with pytest.raises(FencedError, match="number of buckets was changed"):
        run_alone(fence_bucket(log, 7, "run"))
    run_alone(log.checkpoint(at_least=1))
    assert machine.paths("/job") == before
    with pytest.raises(ConfigurationError, match="another number of buckets") as caught:
        BEFORE.store(machine)
    assert (caught.value.expected, caught.value.found) == ("commit.buckets: 2", "3 buckets")
    assert "distcommit store rebucket JOB.yaml --buckets 2" in caught.value.todo


def test_job_log_older_than_a_bucket_log_raises_stale_store_error() -> None:
    machine = after_first_run()
    job_log = machine.paths("/job/store/log/job")
    rebucketed(machine)
    for path in machine.paths("/job/store/log/job"):
        machine.remove(path)
    for path, data in job_log.items():
        machine.put(path, data)
    store = BEFORE.store(machine)
    with pytest.raises(StaleStoreError, match="older than a bucket's log"):
        operator_actions.set_watermark(store, "a", BACK, "person")
    with pytest.raises(StaleStoreError):
        BEFORE.run(machine, SECOND)


def test_foreign_segment_at_the_start_of_a_new_log_raises_corrupt_error() -> None:
    machine = after_first_run()
    state = DatasetState("a", watermark=Watermark({"0": 99}))
    foreign = Segment(9, "f" * 32, Checkpoint(9, "foreign", (), (state,), 0))
    machine.put(f"/job/store/{log_folder(1, 2)}/000000000001.seg", encode_segment(foreign))
    for _ in range(2):
        with pytest.raises(CorruptError, match="exists with other content"):
            rebucketed(machine)
    assert ANY.store(machine).generation == 0
    machine.remove(f"/job/store/{log_folder(1, 2)}/000000000001.seg")
    assert final_violation(machine) == ""


def test_rebucket_of_a_store_older_than_its_output_is_refused() -> None:
    machine = after_first_run()
    backup = machine.paths(ROOTS.store)
    BEFORE.run(machine, SECOND)
    for path in machine.paths(ROOTS.store):
        machine.remove(path)
    for path, data in backup.items():
        machine.put(path, data)
    with pytest.raises(StaleStoreError):
        rebucketed(machine)
    assert ANY.store(machine).job_log().refresh().under_way is None


def test_runs_delete_staging_and_tables_of_removed_buckets() -> None:
    machine = Machine()
    many = World(buckets=8, resized=True)
    many.run(machine, FIRST)
    new_run(machine, many, SECOND)  # this run never ends
    staged = many.store(machine)
    for bucket in range(8):
        machine.put(f"/job/staging/{2:010d}/bucket={bucket:05d}/unit.attempt/x.parquet", b"x")
    assert staged.buckets == 8
    rebucketed(machine, 1)
    assert {"/bucket=00007/" in path for path in machine.paths("/job/staging")} == {True, False}
    for number in range(DEFAULT_RETENTION.tables + 1):
        ANY.run(machine, ModelSource({urn: ModelDataset({"0": number + 2}) for urn in "acg"}))
    assert machine.paths("/job/staging") == {}
    tables = [path for path in machine.paths(ROOTS.store) if "/plans/" in path or "/task_states/" in path]
    assert {part for path in tables for part in path.split("/") if bucket_number(part)} == set()


def test_damaged_job_log_of_a_rebucketed_store_is_named() -> None:
    machine = after_first_run()
    rebucketed(machine)
    for path in machine.paths("/job/store/log/job"):
        machine.put(path, b"?")
    with pytest.raises(CorruptError, match="segment is corrupt"):
        open_store(SimulatedFileSystem(machine), ROOTS, "job", create=False)


def test_fold_of_an_ended_log_stops_its_run() -> None:
    machine = after_first_run()
    old: JobStore = BEFORE.store(machine)
    rebucketed(machine)
    log = old.bucket_log(0)
    with pytest.raises(FencedError, match="continues in generation 1"):
        require_fence(log.refresh(), 9, log.folder)
    assert run_alone(log.settle(partial(next_log_record.fence, epoch=9, run_id="late"))).fence_epoch == 5
    assert next_log_record.move(log.refresh(), 4, 2) is None


def test_run_whose_fence_follows_the_begin_of_a_rebucket_is_refused() -> None:
    """The run read the job log before the rebucket began."""
    machine = after_first_run()
    store = BEFORE.store(machine)
    epoch = fence_job(store, "moves", moving=True)
    begins = partial(next_log_record.rebucket, epoch=epoch, generation=1, buckets=3, settings={})
    machine.faults.append(before_record(machine, 0, lambda: run_alone(store.job_log(epoch).settle(begins))))
    with pytest.raises(ConflictError, match="a change of the number of buckets is in progress"):
        fence_job(store, "run")
    machine.faults.clear()
    rebucketed(machine)
    assert final_violation(machine) == ""


@pytest.mark.parametrize("watermark", [BACK, Watermark({"0": 1})], ids=["another", "the same"])
def test_watermark_set_at_the_moment_a_log_ends_is_refused(watermark: Watermark) -> None:
    machine = after_first_run()
    BEFORE.recover(machine, FIRST)  # makes setting the same value write a record
    store = BEFORE.store(machine)
    machine.faults.append(before_record(machine, 0, lambda: rebucketed(machine)))
    with pytest.raises(ConflictError, match="opens the store again"):
        operator_actions.set_watermark(store, "a", watermark, "person")
    assert stored_states(AFTER.store(machine))["a"].watermark == Watermark({"0": 1})


@pytest.mark.parametrize("command", [rebucketed, dies_half_way])
def test_store_restored_from_before_a_rebucket_raises_stale_store_error(command: Callable[[Machine], object]) -> None:
    """Otherwise a zombie of the rebucket command would have the epoch of a run."""
    machine = after_first_run()
    backup = machine.paths(ROOTS.store)
    command(machine)
    for path in machine.paths(ROOTS.store):
        machine.remove(path)
    for path, data in backup.items():
        machine.put(path, data)
    with pytest.raises(StaleStoreError, match="older than its published output"):
        BEFORE.run(machine, SECOND)
