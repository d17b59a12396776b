"""A construct in native code that does not return: its worker is killed, and its work unit is recorded and skipped."""

from __future__ import annotations

import ctypes
import dataclasses
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from msgspec.structs import replace

from distcommit.constructs.registry.registry_client import RegisteredSchema, registry_client_class
from distcommit.constructs.registry.registry_converter import Decoder
from distcommit.core.error_handling.error_text_classification import has_killed_its_worker, is_permanent
from distcommit.core.errors import ProcessLostError, StuckError, error_text
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.redaction import Redaction
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import TaskOutcome, TaskState, WorkUnit
from distcommit.engine.driver.run import run
from distcommit.engine.reading.ingest import failed_state, ingest_partition
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.branches.construct_chain import Chain
from distcommit.pipeline.branches.traced_batch import TracedBatch
from distcommit.pipeline.limits.time_limit import construct_time_limit
from distcommit.pipeline.limits.watchdog_process import LEAST_MARGIN_S, Watchdog
from distcommit.pipeline.limits.watchdog_program import Worker
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.state.stuck_work_unit_record import failure_of
from distcommit.stores.state.task_states import TaskStateTables, TaskStateWriter, prepare_run
from distcommit.testing.fakes.convert_batch import unit_of
from tests.simulation.world import launch_here
from tests.unit.constructs.registry.test_registry_schema_policy import batch_of, converter, message
from tests.unit.engine.committing.situations import WORLD, check_recovery, rows
from tests.unit.engine.driver.machines import Machine, audit, begin_ingest, ingest_all, source

UNIT = WorkUnit("00000_000001", "a", Watermark({"0": 10}), Watermark({"0": 14}), 4)
STUCK = StuckError("a construct does not return from native code")
LIMIT_S, LONG_S = 0.2, 600


SETTINGS: Any = SimpleNamespace(run_id="run", epoch=1, clock=SimpleNamespace(now_ms=lambda: 1))
"""The settings of a run that the state of a failed attempt needs."""


def watchdog_in(folder: Path, least_margin_s: float = LEAST_MARGIN_S, record_s: float = 60, **flow: Any) -> Watchdog:
    """Return the watchdog of a flow with one stage, unless `flow` says otherwise."""
    parts = {"construct_seconds": LIMIT_S, "fork": None, "stages": ("one",), "branches": (), "hidden": Redaction()}
    return Watchdog(cast(TaskFlow, SimpleNamespace(**parts | flow)), writer_in(folder), least_margin_s, record_s)


def writer_in(folder: Path) -> TaskStateWriter:
    return TaskStateWriter(LocalFileSystem(durable=False), str(folder), "run", 1)


def states_in(folder: Path) -> list[TaskState]:
    tables = TaskStateTables(LocalFileSystem(), str(folder), "run", 1, (0,))
    return list(tables.take(0, from_start=True)[0])


def hold_the_interpreter() -> None:
    sum(range(10**15))


def wait_for_ever() -> None:
    """Release the interpreter and continue after every signal: a lock is acquired twice."""
    mutex = ctypes.create_string_buffer(128)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)


def compile_a_schema() -> None:
    """Take a message with an unknown schema, so that its decoder is created within the converter."""
    registry_client_class()  # its import outlasts the short limit of this test
    registry_converter = converter()

    def decoder(writer: RegisteredSchema, reader: RegisteredSchema | None) -> Decoder:
        hold_the_interpreter()
        raise AssertionError(writer, reader)

    object.__setattr__(registry_converter, "decoder", decoder)
    registry_converter.begin_work_unit(unit_of("orders"))
    Chain([Stage("greedy", registry_converter)], unit_of("orders"), LIMIT_S).run([TracedBatch(batch_of([message(1)]))])


def leave_a_process_that_has_all_descriptors() -> None:
    """Fork a process that outlives the worker and inherits its descriptors. The worker then ends at once."""
    if os.fork():
        os._exit(3)
    if has_ended(Path("watchdog").read_text()):
        Path("watchdog").unlink()
    os._exit(0)


PLANTED = ("mmap", "threading", "sitecustomize", "usercustomize", "encodings", "msgspec", "pyarrow")


def worker(folder: Path, does: Callable[[], None], where: str) -> None:
    """Run a task. `where` says whether a construct is at work, and whether a work unit is open. The alarm signal is
    disabled, so that a slow machine does not interrupt the task before it is in native code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    os.chdir(folder)
    for name in PLANTED:
        (folder / f"{name}.py").write_text("open('imported', 'w')")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    record_s = 0 if does is break_the_store_and_pause else 600
    watchdog = watchdog_in(folder, least_margin_s=0.3, record_s=record_s)
    with watchdog:
        (pid,) = children_of(os.getpid())
        (folder / "watchdog").write_text(pid)
        if where == "outside a unit":
            with construct_time_limit(LIMIT_S, "greedy"):
                does()
        with watchdog.working_on(0, failed_state(SETTINGS, UNIT, STUCK)):
            for _ in range(3):
                with construct_time_limit(LONG_S, "quick"):
                    pass
            if where == "in a chain":
                does()
            with construct_time_limit(
                LONG_S if does is leave_a_process_that_has_all_descriptors else LIMIT_S, "greedy"
            ):
                does()


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def ended(folder: Path, does: Callable[[], None], where: str = "in a construct") -> int | None:
    """Run a worker to its end, and return its exit code."""
    prepare_run(LocalFileSystem(), str(folder), "run", 0, 1)
    process = multiprocessing.get_context("spawn").Process(target=worker, args=(folder, does, where))
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
    return process.exitcode


def has_ended(pid: str) -> bool:
    """Wait for the end of a process that need not be a child."""
    try:
        return Worker(int(pid), os.pidfd_open(int(pid))).has_ended(60)
    except ProcessLookupError:
        return True


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("does", "where"),
    [
        (wait_for_ever, "in a construct"),
        (compile_a_schema, "in a chain"),
    ],
)
def test_worker_in_native_code_is_killed_and_its_work_unit_recorded_once(
    tmp_path: Path, does: Callable[[], None], where: str
) -> None:
    assert ended(tmp_path, does, where) == -signal.SIGKILL
    (state,) = states_in(tmp_path)
    assert (state.work_unit_id, state.outcome, state.low) == (UNIT.work_unit_id, TaskOutcome.FAILED, UNIT.low)
    assert state.branches == (), "the record names no staged file"
    assert "does not return from native code" in state.error
    assert "dataset=a, work_unit=00000_000001, construct=greedy" in state.error
    assert has_killed_its_worker(state.error)
    assert is_permanent(state.error)
    assert has_ended((tmp_path / "watchdog").read_text())
    assert not (tmp_path / "imported").exists(), "no module is imported from the working folder or the environment"


@pytest.mark.thorough
def test_worker_that_hangs_outside_of_work_units_is_killed_and_nothing_recorded(tmp_path: Path) -> None:
    assert ended(tmp_path, wait_for_ever, "outside a unit") == -signal.SIGKILL
    assert states_in(tmp_path) == []


def break_the_store_and_pause() -> None:
    """Replace the store's folder of task states (in the working folder) with a file, and block."""
    Path("task_states").rename("away")
    Path("task_states").write_text("no folder")
    wait_for_ever()


@pytest.mark.thorough
def test_worker_is_killed_although_its_store_can_not_be_written(tmp_path: Path) -> None:
    assert ended(tmp_path, break_the_store_and_pause) == -signal.SIGKILL


@pytest.mark.thorough
def test_watchdog_ends_with_its_worker_although_another_process_has_the_descriptors(tmp_path: Path) -> None:
    assert ended(tmp_path, leave_a_process_that_has_all_descriptors) == 3
    assert not (tmp_path / "watchdog").exists(), "the inherited descriptors are closed in the other process"


@pytest.mark.thorough
def test_consecutive_tasks_leave_no_process_and_no_descriptor(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from tests.unit.pipeline.limits.test_watchdog_process import *
folder = Path({str(tmp_path)!r})
before = os.listdir("/proc/self/fd")
for _ in range(5):
    with watchdog_in(folder) as watchdog:
        (child,) = children_of(os.getpid())
        words = Path(f"/proc/{{child}}/cmdline").read_bytes()
        assert str(folder).encode() not in words, "the store is not on the command line"
        with watchdog.working_on(0, failed_state(SETTINGS, UNIT, STUCK)), construct_time_limit(LONG_S, "quick"):
            pass
    assert children_of(os.getpid()) == [], "it was waited for: no zombie"
assert os.listdir("/proc/self/fd") == before
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_flow_without_constructs_or_without_a_limit_has_no_watchdog(tmp_path: Path) -> None:
    before = children_of(os.getpid())
    for changed in ({"stages": ()}, {"construct_seconds": 0}):
        with watchdog_in(tmp_path, **changed) as watchdog, watchdog.working_on(0, failed_state(SETTINGS, UNIT, STUCK)):
            assert children_of(os.getpid()) == before


def test_process_that_is_not_the_worker_is_never_killed() -> None:
    """Another process may have taken over the worker's pid."""
    with subprocess.Popen(["sleep", "60"]) as process:
        stranger = Worker(process.pid, -1)
        assert stranger.has_ended(60), "the process is not the parent"
        stranger.kill()
        assert process.poll() is None
        descriptor = os.pidfd_open(process.pid)
        process.kill()
        process.wait()
        ended_worker = Worker(process.pid, descriptor)
        assert ended_worker.has_ended(60)
        ended_worker.kill()
        os.close(descriptor)


def stuck_unit_of(settings: Any, data: Any, urn: str) -> tuple[int, TaskState]:
    """Return the bucket of the dataset's work unit, and its recorded failure."""
    (failure,) = [state for state in read_by_another_run(data) if state.dataset_urn == urn]
    bucket = int(failure.work_unit_id.partition("_")[0])
    return bucket, failed_state(settings, replace(UNIT, work_unit_id=failure.work_unit_id, dataset_urn=urn), STUCK)


def record(settings: Any, *attempt_states: tuple[int, TaskState]) -> None:
    store = settings.store
    writer = TaskStateWriter(store.fs, store.roots.store, settings.run_id, settings.partitions)
    for bucket, state in attempt_states:
        writer.append({bucket: [state]})


def read_by_another_run(data: Any) -> list[TaskState]:
    """Return the states of a run of the same plan on another machine."""
    settings, tasks = begin_ingest(WORLD, Machine(), data)
    ingest_all(settings, tasks)
    return [state for number in range(settings.store.buckets) for state in rows(settings, number)]


def test_next_attempt_at_the_task_skips_the_work_unit_and_reads_all_others() -> None:
    machine, data = Machine(), source(a=2, b=1, c=3)
    settings, tasks = begin_ingest(WORLD, machine, data)
    record(settings, stuck_unit_of(settings, data, "a"))
    reports = ingest_all(settings, tasks)
    assert sum(report.counts.work_units_failed for report in reports) == 1
    states_by_urn = {
        state.dataset_urn: state for number in range(settings.store.buckets) for state in rows(settings, number)
    }
    assert {urn: state.outcome for urn, state in states_by_urn.items()} == {
        "a": TaskOutcome.FAILED,
        "b": TaskOutcome.SUCCEEDED,
        "c": TaskOutcome.SUCCEEDED,
    }
    assert states_by_urn["a"].error == error_text(STUCK)
    check_recovery(machine, data)


def launch_with_stuck(data: Any, *stuck: str, is_recorded: bool = True) -> tuple[Any, list[str]]:
    """Build a launch whose ingest job dies of one stuck dataset after another, and the list of launches."""
    waiting, launched = list(stuck), list[str]()

    def launch(function: Any, settings: Any, tasks: int, kind: Any) -> Any:
        launched.append(function.__name__)
        if function is ingest_partition and waiting:
            urn = waiting.pop(0)
            if is_recorded:
                record(settings, *[stuck_unit_of(settings, data, urn)] * 2)
            raise ProcessLostError("a job failed", found="a Python worker died")
        return launch_here(function, settings, tasks, kind)

    return launch, launched


def test_ingest_job_that_died_of_stuck_work_units_is_launched_again_for_all_others() -> None:
    """A task has more stuck work units than Spark's attempts. Each is reported as one reason, though two attempts
    recorded it.
    """
    machine, data = Machine(), source(a=2, b=1, c=3, d=1)
    launch, launched = launch_with_stuck(data, "a", "b", "c")
    result = run(launch, WORLD.begin(machine, data))
    assert launched.count("ingest_partition") == 4
    assert (result.totals.datasets_published, result.error) == (1, "")
    assert sorted(reason.subject for reason in result.reasons.entries) == ["a", "b", "c"]
    check_recovery(machine, data)
    assert audit(WORLD, machine).exact


def test_ingest_job_that_dies_for_another_reason_is_launched_once_more() -> None:
    """The second launch notes what it reads; it dies before it reads anything."""
    launch, launched = launch_with_stuck(source(a=2), "a", "a", is_recorded=False)
    result = run(launch, WORLD.begin(Machine(), source(a=2)))
    assert launched.count("ingest_partition") == 2
    assert result.error == "ingest: a Python worker died"


def test_attempt_that_ends_after_its_work_unit_was_recorded_as_stuck_is_published_once() -> None:
    """The worker returns from native code while it is being killed."""
    machine, data = Machine(), source(a=2, b=1)
    settings, tasks = begin_ingest(WORLD, machine, data)
    stuck = stuck_unit_of(settings, data, "a")
    ingest_all(settings, tasks)
    record(settings, stuck)
    reports = ingest_all(settings, tasks)
    assert sum(report.counts.work_units_failed for report in reports) == 0
    check_recovery(machine, data)


class Noting(Converter):
    """A converter that records its alarm setting at each call."""

    def __init__(self) -> None:
        self.limits: list[tuple[str, float]] = []

    def _note(self, at: str) -> None:
        self.limits.append((at, signal.getitimer(signal.ITIMER_REAL)[0]))

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        self._note("convert_schema")
        return schema

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        self._note("convert")
        yield Converted(batch)

    def begin_work_unit(self, unit: WorkUnit) -> None:
        self._note("begin_work_unit")

    def load_schema_ids(self, ids: Any) -> None:
        self._note("load_schema_ids")

    def schema_ids(self) -> tuple[int, ...]:
        self._note("schema_ids")
        return ()

    def close(self) -> None:
        self._note("close")


def test_every_call_of_a_converter_has_the_limit() -> None:
    machine, data, noting = Machine(), source(a=2), Noting()
    settings, tasks = begin_ingest(WORLD, machine, data)
    (branch,) = settings.flow.branches
    assert isinstance(branch, Branch)
    assert isinstance(branch.sink, FileSink)
    for flow in (
        TaskFlow(data, (branch,), (Stage("noting", noting),), construct_seconds=600),
        TaskFlow(data, (Branch(branch.sink, stages=(Stage("noting", noting),)),), construct_seconds=600),
    ):
        noting.limits.clear()
        settings, tasks = begin_ingest(WORLD, Machine(), data)
        ingest_all(dataclasses.replace(settings, flow=flow), tasks)
        calls = {"convert_schema", "convert", "begin_work_unit", "load_schema_ids", "schema_ids", "close"}
        assert {name for name, _ in noting.limits} == calls
        assert [name for name, seconds in noting.limits if not seconds] == []


def test_recorded_failure_is_an_attempt_of_its_own() -> None:
    """If the record belonged to the killed attempt, it would state that the attempt had ended before it was killed."""
    states = [failed_state(SETTINGS, UNIT, STUCK) for _ in range(2)]
    assert states[0].attempt != states[1].attempt
    store = pickle.dumps((Redaction(), writer_in(Path("/nowhere"))))
    failure = failure_of(store, pickle.dumps((0, states[0])), "greedy")
    assert failure.state.attempt == states[0].attempt
    assert "construct=greedy" in failure.state.error
