"""A task attempt at one work unit: its reported state in each outcome."""

from __future__ import annotations

import errno
import gc
import json
import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from msgspec.structs import replace as changed

from distcommit.constructs.record_converter import Record, RecordConverter
from distcommit.core.errors import SourceError, kind_of
from distcommit.core.interfaces.committer import CommitterContext, SinkCommitter
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, Sink, SinkWriter, StagingArea
from distcommit.core.interfaces.source import Extraction, Extractor, Source
from distcommit.core.interfaces.source_table import Extract, TableType, with_extract
from distcommit.core.records.maintenance_units import ReprocessedFiles
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, TaskOutcome, TaskState, WorkUnit
from distcommit.pipeline.progress_counters import ProgressCounters
from distcommit.pipeline.task_attempt import MAX_BYTES, run_work_unit
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.folders.staging import make_area, prepare_bucket
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine, QuickClock, fails

GOOD, BAD = b'{"x": 1}', b'{"x": "one"}'
UNIT = WorkUnit("00000_000001", "a", Watermark({"0": 10}), Watermark({"0": 14}), 4)


class Numbers(RecordConverter):
    """A converter of JSON values with a number `x` to a column."""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema.append(pa.field("x", pa.int64()))

    def convert_record(self, output_schema: pa.Schema, record: Record, unit: WorkUnit) -> Record:
        value = json.loads(record["value"] or b"{}")
        return {**record, "x": value.get("x")}


SCHEMA = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])


@dataclass(frozen=True)
class ListSource(Source, Extractor):
    """A source of batches of values, with offsets from 10, and then an error, if one is given."""

    batches: tuple[tuple[bytes | None, ...], ...]
    error: BaseException | None = None
    high: int | None = None
    provenance = Provenance("partition", "offset")

    def plan(self, owned: object, states: object) -> Iterator[DatasetPlan]:
        return iter(())

    def open(self) -> Extractor:
        return self

    def extract(self, unit: WorkUnit) -> Extraction:
        return ListExtraction(self)

    def close(self) -> None:
        pass


@dataclass
class ListExtraction(Extraction):
    source: ListSource
    offset: int = 10
    bytes: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for values in self.source.batches:
            offsets = range(self.offset, self.offset + len(values))
            self.offset += len(values)
            self.bytes += sum(len(value or b"") for value in values)
            yield pa.record_batch([[0] * len(values), list(offsets), list(values)], schema=SCHEMA)
        if self.source.error is not None:
            raise self.source.error

    def actual_high(self) -> Watermark:
        return Watermark({"0": self.offset if self.source.high is None else self.source.high})

    def bytes_read(self) -> int:
        return self.bytes


def run_unit(
    source: ListSource,
    *,
    divert: bool = False,
    machine: Machine | None = None,
    unit: WorkUnit = UNIT,
    deadline_ms: int = 0,
    clock: QuickClock | None = None,
    sink: Sink | None = None,
    live: ProgressCounters | None = None,
) -> TaskState:
    fs = SimulatedFileSystem(machine or Machine())
    prepare_bucket(fs, "/job/staging", 7, 0)
    identity = AttemptIdentity("run", 7, "a", unit.work_unit_id, uuid.uuid4().hex)
    numbers = Stage("numbers", Numbers(), on_failure="divert" if divert else "fail")
    flow = TaskFlow(source, (Branch(sink or FileSink()),), (numbers,))
    area = make_area(fs, "/job/staging", "/job/output", 0, identity)
    return run_work_unit(flow, source.open(), unit, area, identity, clock or QuickClock(), deadline_ms, counters=live)


def infos(state: TaskState) -> list[Any]:
    return [info for result in state.branches for info in result.infos]


def counts(state: TaskState) -> tuple[int, int, int]:
    written = sum(result.records_written for result in state.branches)
    return state.records_read, written, sum(result.records_rejected for result in state.branches)


def test_successful_work_unit_reports_its_range_and_its_files() -> None:
    state = run_unit(ListSource(((GOOD, GOOD), (None, GOOD))))
    assert (state.outcome, state.actual_high, state.error) == (TaskOutcome.SUCCEEDED, Watermark({"0": 14}), "")
    assert counts(state) == (4, 4, 0)
    assert state.bytes_read == 3 * len(GOOD)
    [file] = state.files
    assert (file.records, file.staged_path.startswith("0000000007/bucket=00000/00000_000001.")) == (4, True)
    assert (state.run_id, state.epoch, state.low, state.expected_high) == ("run", 7, UNIT.low, UNIT.expected_high)


def test_record_that_cannot_be_decoded_fails_the_work_unit_and_is_shown() -> None:
    machine = Machine()
    state = run_unit(ListSource(((GOOD, GOOD), (GOOD, BAD))), machine=machine)
    assert (state.outcome, state.files, state.actual_high) == (TaskOutcome.FAILED, (), UNIT.low)
    assert counts(state) == (4, 2, 0)
    ids = "[construct=numbers, dataset=a, work_unit=00000_000001]"
    assert state.error.startswith(f"RECORD_REJECTED: a record is rejected {ids}")
    assert "'one'" in state.error


def test_rejected_records_go_to_a_separate_file_and_are_counted() -> None:
    state = run_unit(ListSource(((GOOD, BAD), (BAD, GOOD))), divert=True)
    assert (state.outcome, state.actual_high) == (TaskOutcome.SUCCEEDED, Watermark({"0": 14}))
    assert counts(state) == (4, 2, 2)
    assert sorted((file.final_path.split("/")[0], file.records) for file in state.files) == [
        ("_rejected", 2),
        ("a", 2),
    ]


def test_work_unit_whose_records_are_all_rejected_succeeds() -> None:
    state = run_unit(ListSource(((BAD, BAD, BAD, BAD),)), divert=True)
    assert (state.outcome, counts(state)) == (TaskOutcome.SUCCEEDED, (4, 0, 4))
    assert [file.final_path.split("/")[0] for file in state.files] == ["_rejected"]


def test_empty_work_unit_succeeds_without_a_file() -> None:
    state = run_unit(ListSource(((), ()), high=14))
    assert (state.outcome, state.files, state.actual_high) == (TaskOutcome.SUCCEEDED, (), Watermark({"0": 14}))
    assert counts(state) == (0, 0, 0)


@pytest.mark.parametrize("error", [SourceError("lost"), OSError(errno.EIO, "EIO"), ZeroDivisionError("odd \udcff")])
def test_source_exception_yields_a_failed_state_without_outputs(error: Exception) -> None:
    state = run_unit(ListSource(((GOOD, GOOD),), error))
    assert (state.outcome, state.files, state.actual_high) == (TaskOutcome.FAILED, (), UNIT.low)
    assert counts(state) == (2, 2, 0)
    assert state.error.encode().startswith(kind_of(error).encode())


@pytest.mark.parametrize("high", [9, 15])
def test_high_watermark_outside_the_work_unit_is_never_reported(high: int) -> None:
    state = run_unit(ListSource(((GOOD,),), high=high))
    assert (state.outcome, state.actual_high) == (TaskOutcome.FAILED, UNIT.low)
    assert "outside its work unit" in state.error


@pytest.mark.parametrize(("kind", "code"), [("create", errno.ENOSPC), ("write", errno.EIO), ("rename", errno.EDQUOT)])
def test_disk_failure_yields_a_failed_state_and_leaves_started_files_alone(kind: str, code: int) -> None:
    machine = Machine()
    machine.faults.append(fails(code, kind, "/job/staging/"))
    state = run_unit(ListSource(((GOOD, GOOD),)), machine=machine)
    assert (state.outcome, state.files) == (TaskOutcome.FAILED, ())
    assert "OSError" in state.error
    assert not [op for op in machine.made if op.kind in ("unlink", "rmdir")]


def test_long_value_does_not_make_the_error_long() -> None:
    state = run_unit(ListSource((((b"x" * 1_000_000),),)))
    assert len(state.error) <= 4000


def test_work_unit_stops_at_its_byte_limit_and_reports_its_position() -> None:
    unit = changed(UNIT, properties={MAX_BYTES: str(len(GOOD))})
    state = run_unit(ListSource(((GOOD,), (GOOD,), (GOOD,))), unit=unit)
    assert (state.outcome, state.actual_high, counts(state)) == (TaskOutcome.SUCCEEDED, Watermark({"0": 11}), (1, 1, 0))


class TickingClock(QuickClock):
    """A clock that advances ten seconds with each reading."""

    def now_ms(self) -> int:
        self.sleep(10)
        return super().now_ms()


def test_work_unit_stops_at_the_deadline_and_reports_its_position() -> None:
    clock = TickingClock(0)
    state = run_unit(ListSource(((GOOD,), (GOOD,), (GOOD,), (GOOD,))), deadline_ms=25_000, clock=clock)
    assert (state.outcome, state.actual_high, counts(state)) == (TaskOutcome.SUCCEEDED, Watermark({"0": 12}), (2, 2, 0))


def test_work_unit_that_starts_after_the_deadline_is_left_to_the_next_run() -> None:
    machine = Machine()
    state = run_unit(ListSource(((GOOD,), (GOOD,))), deadline_ms=1, machine=machine)
    assert (state.outcome, state.actual_high, counts(state)) == (TaskOutcome.SUCCEEDED, UNIT.low, (0, 0, 0))
    assert machine.paths("/job/staging") == {}


@dataclass
class NotingSink(CommitterSink, SinkWriter):
    """A sink that records the calls of its one writer. `infos` is the result of `prepare`; `fails` is the method that
    raises.
    """

    name: ClassVar[str] = "noting"
    infos: Sequence[Any] = ("info", {"n": 1})
    fails: str = ""
    notes: list[str] = field(default_factory=list)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        assert area.folder == f"/job/staging/0000000007/bucket=00000/00000_000001.{attempt.attempt}"
        self._note("open")
        return self

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        raise NotImplementedError

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        self._note(f"write {batch.num_rows}")

    def prepare_commit(self) -> Prepared:
        self._note("prepare")
        return Prepared(self.infos)

    def abort(self) -> None:
        self._note("abort")

    def _note(self, what: str) -> None:
        self.notes.append(what)
        if self.fails and what.startswith(self.fails):
            raise ConnectionError(f"can't {what}")


def test_custom_sink_receives_the_records_and_its_commit_infos_are_reported() -> None:
    sink = NotingSink()
    state = run_unit(ListSource(((GOOD, GOOD, BAD), (BAD,))), divert=True, sink=sink)
    assert (state.outcome, infos(state)) == (TaskOutcome.SUCCEEDED, ["info", {"n": 1}])
    assert [file.final_path.split("/")[0] for file in state.files] == ["_rejected"], "error branches are always files"
    assert sink.notes == ["open", "write 2", "prepare"]
    assert counts(state) == (4, 2, 2)


@dataclass(frozen=True)
class TableSource(ListSource):
    """A source that declares extract properties of its datasets."""

    def extract_of(self, dataset_urn: str) -> Extract:
        return Extract("shop", dataset_urn, TableType.APPEND_ONLY)


def received(source: ListSource, unit: WorkUnit = UNIT) -> Origin:
    """Return the origin that the writer of a successful attempt receives."""
    origins: list[Origin] = []

    class InformedSink(NotingSink):
        def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
            origins.append(origin)
            return super().open_writer(attempt, area, origin)

    assert run_unit(source, unit=unit, sink=InformedSink()).outcome is TaskOutcome.SUCCEEDED
    (origin,) = origins
    return origin


def test_writer_receives_the_extract_and_a_work_unit_property_takes_precedence() -> None:
    own = Extract("shop", "a", TableType.SNAPSHOT_APPEND, ("id",), ("at",))
    assert received(ListSource(((GOOD,) * 4,))).extract is None
    assert received(TableSource(((GOOD,) * 4,))).extract == Extract("shop", "a", TableType.APPEND_ONLY)
    assert received(TableSource(((GOOD,) * 4,)), with_extract(UNIT, own)).extract == own


def test_writer_receives_the_schema_if_source_and_converters_declare_theirs() -> None:
    class DeclaringSource(ListSource):
        batch_schema: ClassVar[pa.Schema] = SCHEMA

    assert received(DeclaringSource(((GOOD,) * 4,))).schema == SCHEMA.append(pa.field("x", pa.int64()))
    assert received(ListSource(((GOOD,) * 4,))).schema is None
    reprocess = changed(UNIT, properties=ReprocessedFiles("", ("main",), 1, (1,), ()).unit("a", "", 0).properties)
    assert received(DeclaringSource(((GOOD,) * 4,)), reprocess).schema is None, "rejected records may be older"


def test_property_that_is_not_an_extract_fails_its_work_unit() -> None:
    state = run_unit(ListSource(((GOOD,) * 4,)), unit=changed(UNIT, properties={"extract": "[]"}))
    assert (state.outcome, "property=extract" in state.error) == (TaskOutcome.FAILED, True)


@pytest.mark.parametrize("fails", ["open", "write", "prepare"])
def test_sink_writer_exception_yields_a_failed_state_and_the_writer_is_aborted(fails: str) -> None:
    sink = NotingSink(fails=fails)
    state = run_unit(ListSource(((GOOD,), (BAD,))), divert=True, sink=sink)
    assert (state.outcome, infos(state), state.actual_high) == (TaskOutcome.FAILED, [], UNIT.low)
    assert state.error.startswith("ConnectionError: can't ")
    assert sink.notes.count("abort") == (fails != "open")


def test_exception_in_abort_does_not_hide_the_cause() -> None:
    sink = NotingSink(fails="abort")
    state = run_unit(ListSource(((GOOD,),), SourceError("lost")), sink=sink)
    assert (state.outcome, state.error) == (TaskOutcome.FAILED, "SOURCE_FAILED: lost")


@pytest.mark.parametrize("info", [("a", "tuple"), {1: "key"}, object(), 2**64, {"deep": [{1, 2}]}])
def test_commit_infos_that_cannot_be_stored_fail_the_work_unit(info: Any) -> None:
    sink = NotingSink(infos=[{"good": [None, True, -1, 2.5, "text", b"bytes"]}, info])
    state = run_unit(ListSource(((GOOD,),)), sink=sink)
    assert (state.outcome, infos(state)) == (TaskOutcome.FAILED, [])
    assert "a sink's commit infos can't be stored [sink=noting]" in state.error
    assert sink.notes[-1] == "abort"


class Cell:
    """An object that only the cyclic garbage collector can free."""

    def __init__(self) -> None:
        self.itself = self


@dataclass(frozen=True)
class LitteringSource(ListSource):
    """A source that leaves cyclic garbage with each batch. `left`: how much of it remained when each batch began.
    `searches`: how often it was collected while a batch was produced.
    """

    left: list[int] = field(default_factory=list)
    searches: list[int] = field(default_factory=list)

    def extract(self, unit: WorkUnit) -> Extraction:
        return _LitteringExtraction(self)


class _LitteringExtraction(ListExtraction):
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.source, LitteringSource)
        litter: list[weakref.ref[Cell]] = []
        for batch in super().__iter__():
            self.source.left.append(sum(cell() is not None for cell in litter))
            before = _searches()
            litter += [weakref.ref(Cell()) for _ in range(5000)]
            self.source.searches.append(_searches() - before)
            yield batch


def _searches() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def test_cyclic_garbage_is_collected_between_batches_only() -> None:
    source, threshold = LitteringSource(((GOOD,), (GOOD,), (GOOD,), (GOOD,))), gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # executor functions, which other tests call here, set a higher one
    try:
        assert run_unit(source).outcome is TaskOutcome.SUCCEEDED
    finally:
        gc.set_threshold(*threshold)
    assert source.searches == [0, 0, 0, 0]
    assert source.left == [0, 0, 0, 0], "the garbage of a batch is freed before the next one comes"
    assert gc.isenabled()


def test_work_unit_that_fails_or_ends_early_restores_garbage_collection() -> None:
    run_unit(ListSource(((GOOD,), (BAD,))))
    assert gc.isenabled()
    run_unit(ListSource(((GOOD,),), SourceError("lost")))
    assert gc.isenabled()
    run_unit(ListSource(((GOOD,), (GOOD,))), unit=changed(UNIT, properties={MAX_BYTES: "1"}))
    assert gc.isenabled()
    gc.disable()
    try:
        run_unit(ListSource(((GOOD,),)))
        assert not gc.isenabled()
    finally:
        gc.enable()
