"""The built-in converters fulfill the converter contract, and converters with one flaw each fail it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from distcommit.app.job_file.built_in_types import validated
from distcommit.constructs.record_converter import RecordConverter
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit
from distcommit.testing.contracts import ConverterContract
from distcommit.testing.fakes.convert_batch import unit_of

AT = datetime(2024, 2, 29, 12, tzinfo=UTC)
BATCH = pa.record_batch(
    {
        "key": pa.array([b"\0\0\0\1", None, b"\0\0\0\0\0\0\0\2"], pa.binary()),
        "value": pa.array(
            [b'{"id": 1, "price": 1.50, "tags": ["a"], "at": "2024-02-29T12:00:00Z"}', None, b"{}"], pa.binary()
        ),
        "text": pa.array(["12", None, "-3"], pa.string()),
        "number": pa.array([1, None, 3], pa.int64()),
        "ratio": pa.array([0.5, None, 2.0], pa.float64()),
        "at": pa.array([AT, None, AT], pa.timestamp("us", "UTC")),
        "tags": pa.array([["a", None, "b"], None, []], pa.list_(pa.string())),
        "place": pa.array(
            [{"x": 1, "in": {"y": "a"}}, None, {"x": None, "in": None}],
            pa.struct([("x", pa.int64()), ("in", pa.struct([("y", pa.string())]))]),
        ),
    }
)
FIELDS = {
    "id": "int64",
    "price": "decimal(9, 2)",
    "tags": ["string"],
    "day": "date",
    "when": "timestamp",
    "a": "string",
}
JSON = {"type": "json", "column": "value", "keep_column": False}
SECTIONS: dict[str, dict[str, Any]] = {
    "json": {**JSON, "fields": {"id": "int64", "price": "decimal(9, 2)", "a": "string"}},
    "json nested": {**JSON, "fields": {"a": {"a": {"a": "int32"}}, "b": [["date"]], "c": "timestamp"}},
    "json map": {**JSON, "keep_column": True, "fields": {"a": {"*": "int64"}}},
    "select": {"type": "select", "columns": ["text", "key"]},
    "drop": {"type": "drop", "columns": ["text", "key"]},
    "rename": {"type": "rename", "columns": {"text": "number", "number": "text"}},
    "cast": {"type": "cast", "columns": {"text": "int32", "number": "string", "ratio": "decimal(20, 2)"}},
    "cast times": {"type": "cast", "columns": {"at": "string", "value": "string"}},
    "sql": {"type": "sql", "where": "number IS NULL OR number > 0", "columns": {"text": "CAST(text AS INTEGER) + 1"}},
    "sql where": {"type": "sql", "where": "number IS NULL OR number * 2 > 0"},
    "sql columns": {"type": "sql", "columns": {"late": "CAST(\"at\" AS DATE) > DATE '2024-01-01'", "y": "place.x + 1"}},
    "filter": {
        "type": "filter",
        "when": {"any": [{"column": "number", "op": ">", "value": 0}, {"not": {"column": "text", "op": "is_null"}}]},
    },
    "flatten": {"type": "flatten"},
    "flatten one": {"type": "flatten", "columns": ["place"], "delimiter": "_"},
    "explode": {"type": "explode", "column": "tags"},
    "mask": {"type": "mask", "columns": ["text", "number", "value"]},
    "mask but its end": {"type": "mask", "columns": ["text"], "keep_last": 1},
    "hash": {"type": "hash", "columns": ["text", "value"], "key": "not a secret of anybody"},
    "provenance": {
        "type": "provenance",
        "copies": {"id": "number"},
        "constants": {"a": "x", "b": 1, "c": True, "d": 0.5},
    },
    "key": {"type": "key", "format": "int"},
    "key as text": {"type": "key", "format": "utf8", "column": "value"},
    "tombstones": {"type": "tombstones"},
    "parse": {"type": "parse", "columns": {"text": "int64"}},
    "schema": {"type": "schema"},
    "schema pinned": {"type": "schema", "evolution": "pin"},
    "python": {"type": "python", "class": "tests.contract.test_converters:Doubled", "options": {"column": "tags"}},
}


class Doubled(RecordConverter):
    """A custom converter by record."""

    def __init__(self, column: str) -> None:
        self.column = column

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return pa.schema([("it", pa.string())])

    def convert_record(self, output_schema: pa.Schema, record: dict[str, Any], unit: WorkUnit) -> list[dict[str, Any]]:
        return [{"it": str(record[self.column])}] * 2


class TestBuiltIn(ConverterContract):
    @pytest.fixture(params=SECTIONS, autouse=True)
    def _section(self, request: pytest.FixtureRequest) -> None:
        self.section = SECTIONS[request.param]

    def make_converter(self) -> Converter:
        instance: Converter = validated("converter", self.section)
        return instance

    def make_batch(self) -> pa.RecordBatch:
        return BATCH


class TestIngestTime(ConverterContract):
    varying = ("ingested_at",)

    def make_converter(self) -> Converter:
        instance: Converter = validated("converter", {"type": "provenance", "ingest_time": "ingested_at"})
        return instance

    def make_batch(self) -> pa.RecordBatch:
        return BATCH


class TestDebezium(ConverterContract):
    """Change events as JSON: a new row, a deleted one and a tombstone."""

    def make_converter(self) -> Converter:
        fields = {"id": "int64", "name": "string"}
        instance: Converter = validated("converter", {"type": "debezium", "fields": fields})
        return instance

    def make_batch(self) -> pa.RecordBatch:
        row = '{"id": 1, "name": "a"}'
        values = [f'{{"op": "c", "after": {row}}}', f'{{"op": "d", "before": {row}}}', None]
        return pa.record_batch({"value": pa.array(values, pa.string())})


class Pinned:
    """A schema store with the fields that a dataset's records were read with; nothing else is stored."""

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        return {"id": "int64", "price": "float64", "tags": ["string"], "at": "string"}

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        raise AssertionError(schema)


class TestInferredJson(ConverterContract):
    """Inferred JSON with pinned fields, because inferred ones depend on the first records."""

    def make_converter(self) -> Converter:
        instance: Converter = validated("converter", {"type": "json", "evolution": "pin"})
        return instance

    def converter(self) -> Converter:
        instance = super().converter()
        instance.begin_work_unit(unit_of("a"))
        instance.use_schema_store(Pinned())
        instance.load_schema_ids((7,))
        return instance

    def make_batch(self) -> pa.RecordBatch:
        return BATCH.drop_columns(["at", "tags"])


def test_every_built_in_converter_is_tested_by_the_contract() -> None:
    of_others = {"avro", "protobuf", "json_schema", "schema_registry", "debezium"}
    from distcommit.app.job_file.built_in_types import types_of

    assert set(types_of("converter")) - of_others == {section["type"] for section in SECTIONS.values()}


# -- flawed ones


class Same(Converter):
    """A converter without a flaw, which forwards everything."""

    flaw: ClassVar[str] = ""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch)


class ClaimsAnother(Same):
    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return pa.schema([*schema, ("more", pa.int64())])


class PointsBehind(Same):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch, pa.array(range(1, batch.num_rows + 1)))


class SaysTooFewRows(Same):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch, pa.array(range(batch.num_rows - 1)) if batch.num_rows else None)


class RejectsWithoutReason(Same):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch, None, {0: ""} if batch.column("number").null_count == batch.num_rows else {})


class RejectsOutside(Same):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch, None, {batch.num_rows: "why"})


class Multiplies(Same):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch)
        yield Converted(batch)


class Raises(Same):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        batch.column("text").cast(pa.int64())
        yield Converted(batch)


class LooksAround(Same):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        total = pa.repeat(batch.num_rows, batch.num_rows)
        yield Converted(batch.set_column(3, pa.field("number", pa.int64()), total))


class Remembers(Same):
    seen = 0

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        self.seen += 1
        yield Converted(
            batch if self.seen < 3 else batch.slice(0, 0), pa.array([], pa.int64()) if self.seen > 2 else None
        )


class CannotBeSent(Same):
    def __init__(self) -> None:
        self.held = lambda: None


class RefusesAnyhow(Same):
    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        schema.field("text")
        return schema


class ChecksAnother(Same):
    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema if unit is not None else pa.schema([])


TESTS = [name for name in dir(ConverterContract) if name.startswith("test_")]


def failures(make: Callable[[], Converter]) -> list[str]:
    """Return the contract's tests that the converter fails."""

    class Suite(ConverterContract):
        def make_converter(self) -> Converter:
            return make()

        def make_batch(self) -> pa.RecordBatch:
            return BATCH

    failed = []
    for name in TESTS:
        try:
            getattr(Suite(), name)()
        except Exception:  # noqa: BLE001 - an assertion, or what has escaped
            failed.append(name)
    return failed


def test_converter_without_a_flaw_passes() -> None:
    assert not failures(Same)


@pytest.mark.parametrize(
    "flawed",
    [
        ClaimsAnother, PointsBehind, SaysTooFewRows, RejectsWithoutReason, RejectsOutside, Multiplies, Raises,
        LooksAround, Remembers, CannotBeSent, RefusesAnyhow, ChecksAnother,
    ],
)  # fmt: skip
def test_flawed_converter_fails(flawed: type[Same]) -> None:
    assert failures(flawed)
