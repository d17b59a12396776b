"""Source order of records through each built-in construct, to each kind of writer, and in error files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from distcommit.app.job_file.built_in_types import types_of, validated
from distcommit.constructs.record_converter import Record, RecordConverter
from distcommit.constructs.registry.registry_client import RegisteredSchema, UnknownSchemaError
from distcommit.constructs.registry.registry_converter import RegistryConverter
from distcommit.core.interfaces.committer import CommitterContext, SinkCommitter
from distcommit.core.interfaces.constructs import BranchCounts, Converted, Converter, RowChecker, TaskCheck, TaskChecker
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea
from distcommit.core.interfaces.source import Extraction
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import TaskOutcome, TaskState, WorkUnit
from distcommit.pipeline.branches.restore_source_order import in_source_order
from distcommit.pipeline.branches.traced_batch import TracedBatch
from distcommit.pipeline.task_attempt import run_work_unit
from distcommit.pipeline.task_flow import Branch, Check, Stage, TaskFlow
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.databases.staged_rows import StagedRows, files_of, staged_batches, staged_runs
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.kafka.messages import KafkaWriter
from distcommit.sinks.kafka.messages import Mapping as Mapped
from distcommit.stores.folders.staging import make_area, prepare_bucket
from distcommit.testing.fakes.convert_batch import convert_batch
from tests.simulation.world import SimulatedFileSystem
from tests.unit.avro.test_avro_datums import datum, record
from tests.unit.engine.driver.machines import Machine, QuickClock
from tests.unit.pipeline.test_task_attempt import ListExtraction, ListSource

NOTE = {"name": "note", "type": ["null", "string"], "default": None}
AVRO = {
    1: record(("x", "int")),
    2: {**record(("x", "long")), "fields": [{"name": "x", "type": "long"}, NOTE]},
    3: record(("x", "string")),
    4: record(("x", "int")),
}
VALUES: dict[int, Any] = {1: {"x": 1}, 2: {"x": 2, "note": "n"}, 3: {"x": "3"}, 4: {"x": 4}}
PROTO = {
    1: 'syntax = "proto3"; message M { optional int64 x = 1; }',
    2: 'syntax = "proto3"; message M { optional int64 x = 1; optional string note = 2; }',
    3: 'syntax = "proto3"; message M { optional string x = 1; }',
    4: 'syntax = "proto3"; message M { optional int64 x = 1; message N { optional int64 z = 1; } }',
}
JSON = {
    1: {"type": "object", "properties": {"x": {"type": "integer"}}},
    2: {"type": "object", "properties": {"x": {"type": "integer"}, "note": {"type": "string"}}},
    3: {"type": "object", "properties": {"x": {"type": "string"}}},
    4: {"type": "object", "properties": {"x": {"type": "integer"}}},
}
BODIES = {
    "avro": {number: datum(AVRO[number], VALUES[number]) for number in AVRO},
    "protobuf": {1: b"\0\x08\x01", 2: b"\0\x08\x02\x12\x01n", 3: b"\0\x0a\x013", 4: b"\x04\0\0\x08\x04"},
    "json_schema": {1: b'{"x": 1}', 2: b'{"x": 2, "note": "n"}', 3: b'{"x": "3"}', 4: b'{"x": 4}'},
}
ORDERS: list[list[int | None]] = [
    [1, 2, None, 1, 9, 2, 3, None, 4, 2, 1, 0, 4],
    [None, 2, 1, None, 1],
    [None, None],
    [0, 9],
    [1, None, 1],
]
"""Schema ids of each batch: None is a tombstone, 0 no message of its schema, 3 an incompatible schema, 9 unknown."""


@dataclass
class Schemas:
    """A registry with one kind of schema."""

    kind: str

    def schema(self, schema_id: int) -> RegisteredSchema:
        texts: Mapping[int, Any] = {"avro": AVRO, "protobuf": PROTO, "json_schema": JSON}[self.kind]
        if schema_id not in texts:
            raise UnknownSchemaError(f"no {schema_id}")
        text = texts[schema_id] if self.kind == "protobuf" else json.dumps(texts[schema_id])
        kind = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}[self.kind]
        return RegisteredSchema(schema_id, kind, text, ())

    def latest(self, subject: str) -> RegisteredSchema:
        raise UnknownSchemaError(subject)

    def close(self) -> None:
        pass


def value_of(kind: str, number: int | None) -> bytes | None:
    if number is None:
        return None
    body = BODIES[kind].get(number, b"\xff" * 12)
    return b"\0" + (number or 1).to_bytes(4, "big") + body


def converter_of(kind: str, **settings: Any) -> RegistryConverter:
    settings_model = validated("converter", {"type": kind, "registry": {"url": "http://127.0.0.1:1"}, **settings})
    assert isinstance(settings_model, RegistryConverter)
    settings_model._state.registry = Schemas(kind)  # type: ignore[assignment]
    return settings_model


class WideSource(ListSource):
    """A source with columns for all constructs beside the messages. Some of their values are invalid, and some are
    missing.
    """

    def extract(self, unit: WorkUnit) -> Extraction:
        return WideExtraction(self)


class WideExtraction(ListExtraction):
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return map(widened, super().__iter__())


def widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = [offset - 10 for offset in batch.column("offset").to_pylist()]
    documents = [b"{}", None, b'{"a": 1}', b"not JSON", b'{"a": 2, "b": "x"}']
    texts = ["1", "2", None, "no number", "5"]
    tags = [["a", None, "b"], None, [], ["c"]]
    events = [b'{"op": "c", "before": null, "after": {"a": 1}}', None, b'{"op": "t"}']
    added = {
        "number": pa.array(numbers, pa.int64()),
        "document": pa.array([documents[n % 5] for n in numbers], pa.binary()),
        "text": pa.array([texts[n % 5] for n in numbers], pa.string()),
        "event": pa.array([events[n % 3] for n in numbers], pa.binary()),
        "key": pa.array([b"\0\0\0\1" if n % 3 else b"bad" for n in numbers], pa.binary()),
        "tags": pa.array([tags[n % 4] for n in numbers], pa.list_(pa.string())),
        "place": pa.array([{"a": n} if n % 4 else None for n in numbers], pa.struct([("a", pa.int64())])),
    }
    for name, column in added.items():
        batch = batch.append_column(name, column)
    return batch


@dataclass
class OrderedSink(CommitterSink, SinkWriter):
    """A sink that records the offsets of records in order."""

    name: ClassVar[str] = "ordered"
    offsets: list[int] = field(default_factory=list)
    schemas: list[pa.Schema] = field(default_factory=list)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return self

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        raise NotImplementedError

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        assert origins is not None
        assert len(origins.offsets) == batch.num_rows
        self.offsets += origins.offsets.to_pylist()
        self.schemas.append(batch.schema)

    def prepare_commit(self) -> Prepared:
        return Prepared(["info"])

    def abort(self) -> None:
        pass


class Shuffled(Converter):
    """A converter that reverses the records."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        rows = pa.array(range(batch.num_rows)[::-1], pa.int64())
        yield Converted(batch.take(rows), rows)


class Repeated(RecordConverter):
    """A converter that returns zero, one or two records for each."""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema

    def convert_record(self, output_schema: pa.Schema, record: Record, unit: WorkUnit) -> list[Record]:
        return [record] * (record["number"] % 3)


@dataclass
class Rising:
    """A check that fails unless the offsets ascend."""

    last: int = -1

    def look_at(self, batch: pa.RecordBatch) -> None:
        for offset in batch.column("offset").to_pylist():
            assert offset >= self.last, f"{offset} after {self.last}"
            self.last = offset


class RisingRows(RowChecker):
    """A custom row checker with a state."""

    def __init__(self) -> None:
        self.rising = Rising()

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        self.rising.look_at(batch)
        return pa.array([number % 4 != 1 for number in batch.column("number").to_pylist()], pa.bool_())

    def describe(self) -> str:
        return "any"


class RisingTask(TaskChecker, TaskCheck):
    """A custom task checker with a state."""

    def __init__(self) -> None:
        self.rising = Rising()

    def begin(self) -> TaskCheck:
        return self

    def inspect(self, batch: pa.RecordBatch) -> None:
        self.rising.look_at(batch)

    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        return True, ""


WHERE = {"column": "number", "op": ">", "value": 4}
CONVERTERS: Mapping[str, Mapping[str, Any]] = {
    "cast": {"columns": {"text": "int64"}},
    "debezium": {"column": "event", "fields": {"a": "int64"}},
    "drop": {"columns": ["text"]},
    "explode": {"column": "tags"},
    "filter": {"when": WHERE},
    "flatten": {},
    "parse": {"columns": {"text": "int64"}},
    "hash": {"columns": ["text"], "key": "not a secret of anybody"},
    "json": {"column": "document"},
    "key": {"format": "int"},
    "mask": {"columns": ["text"]},
    "provenance": {"constants": {"added": "x"}},
    "python": {"class": f"{__name__}:Repeated"},
    "rename": {"columns": {"text": "words"}},
    "schema": {},
    "select": {"columns": ["offset", "number"]},
    "sql": {"where": "number <> 5", "columns": {"length": "CHARACTER_LENGTH(text)"}},
    "tombstones": {"column": "document"},
}
ROW_CHECKERS: Mapping[str, Mapping[str, Any]] = {
    "in_set": {"column": "text", "values": ["1", "2"]},
    "not_null": {"columns": ["document"]},
    "python": {"class": f"{__name__}:RisingRows"},
    "range": {"column": "number", "min": 2, "max": 20},
    "regex": {"column": "text", "pattern": "^[0-9]+$"},
    "schema": {"columns": {"x": "int32"}},
}
FORKS: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    "by_schema": {"requires": {"a": ["note"], "b": ["x"]}},
    "every_match": {"when": {"a": WHERE, "b": {"not": WHERE}}},
    "first_match": {"when": {"a": WHERE, "b": {"not": WHERE}}},
    "python": {"class": "tests.contract.test_forks:ByParity"},
}
REGISTRY = ("avro", "json_schema", "protobuf")


def test_every_built_in_construct_is_covered() -> None:
    assert {*CONVERTERS, *REGISTRY} == set(types_of("converter"))
    assert ROW_CHECKERS.keys() == set(types_of("row_checker"))
    assert FORKS.keys() == set(types_of("fork"))


def run_flow(flow: TaskFlow) -> tuple[TaskState, SimulatedFileSystem]:
    fs = SimulatedFileSystem(Machine())
    prepare_bucket(fs, "/job/staging", 7, 0)
    count = sum(map(len, ORDERS))
    unit = WorkUnit("00000_000001", "a", Watermark({"0": 10}), Watermark({"0": 10 + count}), count)
    identity = AttemptIdentity("run", 7, "a", unit.work_unit_id, uuid.uuid4().hex)
    area = make_area(fs, "/job/staging", "/job/output", 0, identity)
    state = run_work_unit(flow, flow.source.open(), unit, area, identity, QuickClock())
    assert (state.outcome, state.error) == (TaskOutcome.SUCCEEDED, "")
    return state, fs


def source_of(kind: str) -> WideSource:
    return WideSource(tuple(tuple(value_of(kind, number) for number in batch) for batch in ORDERS))


def stages_of(kind: str, *behind: Converter | RowChecker) -> tuple[Stage, ...]:
    registry = Stage(kind, converter_of(kind, keep_column=True), on_failure="divert")
    return (registry, *(Stage(f"behind {n}", construct, on_failure="divert") for n, construct in enumerate(behind)))


def assert_in_order(flow: TaskFlow, sinks: Sequence[OrderedSink]) -> None:
    """Run the flow, and require ascending offsets at every sink and in every file of rejected records."""
    state, fs = run_flow(flow)
    rejected: list[int] = []
    for file in state.files:
        path = f"/job/staging/{file.staged_path}"
        footer, offsets = read_footer(fs, path), read_records(fs, path)["offset"].to_pylist()
        assert offsets == sorted(offsets), path
        rejected += offsets if footer is not None and footer.kind == "rejected" else []
    assert rejected
    assert sum(len(sink.offsets) for sink in sinks) > 5
    for sink in sinks:
        assert sink.offsets == sorted(sink.offsets)


@pytest.mark.parametrize("kind", REGISTRY)
def test_registry_converter_keeps_interleaved_schemas_and_tombstones_in_order(kind: str) -> None:
    sink = OrderedSink()
    assert_in_order(TaskFlow(source_of(kind), (Branch(sink),), stages_of(kind), on_rejected="divert"), [sink])
    good = [10 + n for n, number in enumerate(chain.from_iterable(ORDERS)) if number not in (0, 3, 9)]
    assert sink.offsets == good


@pytest.mark.parametrize("name", CONVERTERS)
def test_converter_keeps_the_order_of_records(name: str) -> None:
    sink = OrderedSink()
    settings = validated("converter", {"type": name, **CONVERTERS[name]})
    assert_in_order(TaskFlow(source_of("avro"), (Branch(sink),), stages_of("avro", settings)), [sink])


@pytest.mark.parametrize("name", ROW_CHECKERS)
def test_row_checker_keeps_the_order_of_records(name: str) -> None:
    sink = OrderedSink()
    settings = validated("row_checker", {"type": name, **ROW_CHECKERS[name]})
    assert_in_order(TaskFlow(source_of("avro"), (Branch(sink),), stages_of("avro", settings)), [sink])


@pytest.mark.parametrize("name", FORKS)
def test_fork_keeps_the_order_of_records_in_each_branch(name: str) -> None:
    sinks = {"a": OrderedSink(), "b": OrderedSink()} if name != "python" else {"x": OrderedSink(), "y": OrderedSink()}
    behind = Stage("behind", validated("row_checker", {"type": "range", "column": "number", "min": 2}), True, "divert")
    branches = tuple(Branch(sink, branch, (behind,)) for branch, sink in sinks.items())
    renamed = validated("converter", {"type": "rename", "columns": {"number": "a"}})
    stages = stages_of("avro", *([renamed] if name == "python" else []))
    if name == "python":
        branches = tuple(Branch(sink, branch) for branch, sink in sinks.items())
    fork = validated("fork", {"type": name, **FORKS[name]})
    assert_in_order(TaskFlow(source_of("avro"), branches, stages, fork, "divert"), list(sinks.values()))


def test_converter_that_reorders_records_does_not_change_the_order() -> None:
    sink = OrderedSink()
    flow = TaskFlow(source_of("avro"), (Branch(sink),), stages_of("avro", Shuffled(), Repeated(), RisingRows()))
    assert_in_order(flow, [sink])


def test_custom_task_checker_sees_source_order_although_files_group_schemas() -> None:
    flow = TaskFlow(
        source_of("avro"), (Branch(FileSink(), checks=(Check("rising", RisingTask()),)),), stages_of("avro")
    )
    state, fs = run_flow(flow)
    data = [file for file in state.files if file.final_path.startswith("a/")]
    assert 2 <= len(data) <= 2 * len(ORDERS), "a file for each run of records would be too many"
    for file in data:
        offsets = read_records(fs, f"/job/staging/{file.staged_path}")["offset"].to_pylist()
        assert all(one < other for one, other in pairwise(offsets))


def test_rejections_before_and_in_the_only_branch_are_written_in_source_order() -> None:
    """Without a fork both kinds of rejections go to one error file."""
    own = Stage("own", validated("row_checker", {"type": "range", "column": "number", "min": 3}), True, "divert")
    flow = TaskFlow(source_of("avro"), (Branch(OrderedSink(), stages=(own,)),), stages_of("avro"))
    state, fs = run_flow(flow)
    [errors] = state.files
    offsets = read_records(fs, f"/job/staging/{errors.staged_path}")["offset"].to_pylist()
    assert offsets[:3] == [10, 11, 12]
    assert offsets == sorted(offsets)


def test_tombstone_has_the_columns_of_the_record_before_it_in_one_piece() -> None:
    converter = converter_of("avro")
    values = [value_of("avro", number) for number in (1, None, 1, None)]
    [piece] = convert_batch(converter, pa.record_batch({"value": pa.array(values, pa.binary())}))
    assert piece.rows is not None
    assert (piece.records["x"].to_pylist(), piece.rows.to_pylist()) == ([1, None, 1, None], [0, 1, 2, 3])


def test_first_schema_is_admitted_first_whatever_its_id() -> None:
    converter = converter_of("avro")
    values = [value_of("avro", number) for number in (3, 1)]
    [piece] = convert_batch(converter, pa.record_batch({"value": pa.array(values, pa.binary())}))
    assert (piece.records["x"].to_pylist(), list(piece.rejected)) == (["3"], [1])


def test_several_records_of_one_row_keep_the_order_of_their_pieces() -> None:
    one = TracedBatch(pa.record_batch({"a": [1, 2, 3]}), pa.array([0, 0, 2]).to_numpy())
    other = TracedBatch(pa.record_batch({"b": [4, 5]}), pa.array([0, 1]).to_numpy())
    runs = in_source_order([one, other])
    assert [run.records.to_pydict() for run in runs] == [{"a": [1, 2]}, {"b": [4, 5]}, {"a": [3]}]
    assert [run.origin_rows().tolist() for run in runs] == [[0, 0], [0, 1], [2]]


ALTERNATING = [
    pa.record_batch({"key": [b"k"], "value": [b"%d" % n], **({"more": [n]} if n % 2 else {})}) for n in range(9)
]


@pytest.mark.parametrize("target", ["kafka", "rows"])
def test_rows_buffered_for_a_committer_keep_the_order_where_schemas_alternate(target: str) -> None:
    fs = SimulatedFileSystem(Machine())
    prepare_bucket(fs, "/job/staging", 7, 0)
    area = make_area(fs, "/job/staging", "/job/output", 0, AttemptIdentity("run", 7, "a", "00000_000001", "1"))
    mapping = Mapped(format="bytes", key="key", value="value", headers="", timestamp="", partition="")
    kafka, rows = (
        KafkaWriter(mapping, area, Origin(), "l"),
        StagedRows(area, Origin(), lambda: "l", lambda schema: None),
    )
    writer: SinkWriter = kafka if target == "kafka" else rows
    for batch in ALTERNATING:
        writer.write(batch)
    infos = writer.prepare_commit().infos
    context = CommitterContext(fs, "/job/staging", "/job/output", "s")
    [(path, checksum)] = files_of(infos)
    batches = list(staged_batches(context, path, checksum))
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"%d" % n for n in range(9)]
    if target == "rows":
        assert [len(run) for run in staged_runs(context, path, checksum)] == [1] * 9
        assert [batch.schema for batch in batches] == [batch.schema for batch in ALTERNATING]
