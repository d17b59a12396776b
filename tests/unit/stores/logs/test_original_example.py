"""The example of the original design: https://gobblin.apache.org/docs/miscellaneous/Exactly-Once-Support/

A task generates three output files for the topic 'MyTopic', which has two partitions: five commit steps.
"""

from __future__ import annotations

import pytest

from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import Failed
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine, dies_at, on_every_power_loss

TASK_OUTPUT, JOB_OUTPUT = "/job/task-output", "/job/job-output"
FILES = ("MyTopic/2015-12-09/1.avro", "MyTopic/2015-12-09/2.avro", "MyTopic/2015-12-10/1.avro")
REACHED = Watermark({"0": 100, "1": 200})


def after_the_tasks() -> Machine:
    machine = Machine()
    machine.mkdir(JOB_OUTPUT)
    for name in FILES:
        machine.put(f"{TASK_OUTPUT}/{name}", name.encode())
    machine.syncfs("/")
    return machine


def step_store(machine: SimulatedPosix) -> tuple[LogCommitStepStore, StepContext]:
    context = StepContext(SimulatedFileSystem(machine), TASK_OUTPUT, JOB_OUTPUT)
    return LogCommitStepStore(context.fs, "/job/stores", context, buckets=1), context


def put_five_steps(store: LogCommitStepStore, context: StepContext) -> None:
    for name in FILES:
        store.put("MyJob", "MyTopic", FsRenameCommitStep(context, name, name))
    store.put("MyJob", "MyTopic", HighWatermarkCommitStep("MyTopic", None, Watermark({"0": 100})))
    store.put("MyJob", "MyTopic", HighWatermarkCommitStep("MyTopic", None, Watermark({"1": 200})))


def publish(machine: SimulatedPosix) -> None:
    """Run the job: replay an earlier sealed sequence, or put the five steps one by one, and commit."""
    store, context = step_store(machine)
    store.create("MyJob")
    if store.watermark("MyJob", "MyTopic") is not None:
        return
    if not store.exists("MyJob", "MyTopic"):
        put_five_steps(store, context)
        store.seal("MyJob", "MyTopic")
    sequence = store.get_commit_sequence("MyJob", "MyTopic")
    assert sequence is not None
    sequence.commit()


def violation(machine: SimulatedPosix) -> str:
    """Return a violation of atomicity: if the watermarks of both partitions moved, all files must be present."""
    store, context = step_store(machine)
    watermark = store.watermark("MyJob", "MyTopic") if store.exists("MyJob") else None
    if watermark is None:
        return ""
    present = [name for name in FILES if context.fs.status(f"{JOB_OUTPUT}/{name}") is not None]
    return "" if (watermark, present) == (REACHED, list(FILES)) else f"{watermark}, {present}"


def done(machine: Machine) -> None:
    store, _ = step_store(machine)
    assert store.watermark("MyJob", "MyTopic") == REACHED
    assert not store.exists("MyJob", "MyTopic")
    assert {path: data.decode() for path, data in machine.paths(JOB_OUTPUT).items()} == {
        f"{JOB_OUTPUT}/{name}": name for name in FILES
    }
    assert machine.paths(TASK_OUTPUT) == {}


def test_five_steps_put_one_by_one_are_committed() -> None:
    machine = after_the_tasks()
    publish(machine)
    done(machine)


def test_run_killed_at_any_operation_is_completed_by_the_next() -> None:
    killed = 0
    for number in range(200):
        machine = after_the_tasks()
        machine.faults.append(dies_at(number))
        try:
            publish(machine)
        except Crashed:
            killed += 1
            machine.restart()
        else:
            break
        assert violation(machine) == "", number
        publish(machine)
        done(machine)
    assert 20 < killed < 200


def test_power_loss_leaves_both_watermarks_moved_or_neither() -> None:
    machine, violations = after_the_tasks(), list[str]()
    on_every_power_loss(
        machine, lambda after, where: violations.extend(f"{where}: {w}" for w in [violation(after)] if w)
    )
    publish(machine)
    machine.mkdir("/end")  # a last power loss
    assert violations == []


def test_next_watermark_step_of_each_partition_begins_at_its_own_watermark() -> None:
    machine = after_the_tasks()
    publish(machine)
    store, _ = step_store(machine)
    store.put("MyJob", "MyTopic", HighWatermarkCommitStep("MyTopic", Watermark({"1": 200}), Watermark({"1": 250})))
    store.put("MyJob", "MyTopic", HighWatermarkCommitStep("MyTopic", None, Watermark({"2": 7})))
    store.seal("MyJob", "MyTopic")
    sequence = store.get_commit_sequence("MyJob", "MyTopic")
    assert sequence is not None
    sequence.commit()
    assert store.watermark("MyJob", "MyTopic") == Watermark({"0": 100, "1": 250, "2": 7})


@pytest.mark.parametrize(
    "late",
    [
        HighWatermarkCommitStep("MyTopic", None, Watermark({"1": 300})),
        HighWatermarkCommitStep("MyTopic", Watermark({"1": 199}), Watermark({"1": 300})),
        HighWatermarkCommitStep("MyTopic", Watermark({"1": 200}, "again"), Watermark({"1": 300}, "again")),
        HighWatermarkCommitStep("MyTopic", Watermark({"0": 100, "1": 201}), Watermark({"0": 100, "1": 300})),
        HighWatermarkCommitStep("MyTopic", Watermark({"2": 0}), Watermark({"2": 5})),
    ],
)
def test_move_planned_on_another_watermark_is_refused(late: HighWatermarkCommitStep) -> None:
    machine = after_the_tasks()
    publish(machine)
    store, _ = step_store(machine)
    store.put("MyJob", "MyTopic", HighWatermarkCommitStep("MyTopic", Watermark({"0": 100}), Watermark({"0": 110})))
    store.remove("MyJob", "MyTopic")
    store.put("MyJob", "MyTopic", late)
    with pytest.raises(ConflictError, match="the sequence cannot be sealed"):
        store.seal("MyJob", "MyTopic")
    assert store.watermark("MyJob", "MyTopic") == REACHED


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (HighWatermarkCommitStep("MyTopic", None, Watermark({"0": 100})), "more than once: partition 0"),
        (HighWatermarkCommitStep("Another", None, Watermark({"1": 200})), "'Another'"),
        (HighWatermarkCommitStep("MyTopic", None, Watermark({"1": 200}, "again")), "again"),
    ],
)
def test_steps_that_do_not_form_one_move_are_refused_and_can_be_replaced(
    second: HighWatermarkCommitStep, problem: str
) -> None:
    machine = after_the_tasks()
    store, context = step_store(machine)
    store.create("MyJob")
    store.put("MyJob", "MyTopic", HighWatermarkCommitStep("MyTopic", None, Watermark({"0": 100})))
    store.put("MyJob", "MyTopic", second)
    with pytest.raises(ConfigurationError, match="cannot be joined into one move") as refused:
        store.seal("MyJob", "MyTopic")
    assert problem in refused.value.found
    assert store.remove("MyJob", "MyTopic")
    put_five_steps(store, context)
    store.seal("MyJob", "MyTopic")
    assert store.exists("MyJob", "MyTopic")


@pytest.mark.parametrize("abandoned", [False, True])
def test_task_output_folder_is_kept_although_all_its_files_are_moved_or_deleted(abandoned: bool) -> None:
    machine = Machine()
    machine.mkdir(JOB_OUTPUT)
    machine.put(f"{TASK_OUTPUT}/1.avro", b"1")
    store, context = step_store(machine)
    store.create("MyJob")
    store.put("MyJob", "MyTopic", FsRenameCommitStep(context, "1.avro", "MyTopic/1.avro"))
    store.seal("MyJob", "MyTopic")
    sequence = store.get_commit_sequence("MyJob", "MyTopic")
    assert sequence is not None
    if abandoned:
        sequence.steps[0].withdraw()
    else:
        sequence.commit()
    assert (f"{TASK_OUTPUT}", None) in [(path, data) for _, path, data in machine.files()]
    assert machine.paths(TASK_OUTPUT) == {}


def as_job_store(machine: SimulatedPosix) -> JobStore:
    roots = Roots("/job/stores/MyJob", TASK_OUTPUT, JOB_OUTPUT)
    return open_store(SimulatedFileSystem(machine), roots, "MyJob", create=False)


def test_abandoned_half_published_sequence_leaves_no_file_and_moves_no_watermark() -> None:
    machine = after_the_tasks()
    store, context = step_store(machine)
    store.create("MyJob")
    put_five_steps(store, context)
    store.seal("MyJob", "MyTopic")
    sequence = store.get_commit_sequence("MyJob", "MyTopic")
    assert sequence is not None
    sequence.steps[1].execute()
    opened = as_job_store(machine)
    epoch = opened.job_log().refresh().fence_epoch
    failed = Failed(epoch, SequenceName("MyTopic", epoch), True, "a disk is gone")
    run_alone(opened.bucket_log(0, epoch).settle(lambda fold: failed if fold.pending() else None))
    operator_actions.abandon(opened, "MyTopic", "person")
    assert machine.paths(JOB_OUTPUT) == {}
    assert store.watermark("MyJob", "MyTopic") is None
    for name in FILES:
        machine.put(f"{TASK_OUTPUT}/{name}", name.encode())
    publish(machine)
    done(machine)
