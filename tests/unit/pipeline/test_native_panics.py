"""Panics of native code in each part of a task: each fails one record, one schema or one work unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distcommit.constructs.bad_record_bisection import convert_or_bisect
from distcommit.constructs.record_converter import Record, RecordConverter
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.registry_converter import Decoded, Decoder, RegistryConverter
from distcommit.constructs.registry.wire_format import Framed
from distcommit.core.errors import TimeLimitError
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.work_units import TaskOutcome, WorkUnit
from distcommit.schemas.schema_size_limits import UnusableSchemaError
from distcommit.testing.fakes.convert_batch import convert_batch
from tests.unit.constructs.registry.test_registry_schema_policy import converter, message
from tests.unit.pipeline.test_task_attempt import GOOD, ListSource, run_unit


class Panic(BaseException):
    """A panic, as a Rust extension raises it."""


@dataclass(frozen=True)
class Fails(RecordConverter):
    """A converter that raises an error at each record whose value is `bad`."""

    error: BaseException

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema

    def convert_record(self, output_schema: pa.Schema, record: Record, unit: WorkUnit) -> Record:
        if record["value"] == "bad":
            raise self.error
        return record


@pytest.mark.parametrize("error", [Panic("boom"), KeyError("boom"), AttributeError("boom"), MemoryError("boom")])
def test_any_exception_of_a_record_converter_rejects_only_that_record(error: BaseException) -> None:
    (converted_batch,) = convert_batch(Fails(error), pa.record_batch({"value": ["a", "bad", "b"]}))
    assert converted_batch.records.to_pylist() == [{"value": "a"}, {"value": "b"}]
    assert "boom" in converted_batch.rejected[1]
    assert type(error).__name__ in converted_batch.rejected[1]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), TimeLimitError("too long")])
def test_cancellation_and_time_limit_pass_through_a_record_converter(error: BaseException) -> None:
    with pytest.raises(type(error)):
        list(convert_batch(Fails(error), pa.record_batch({"value": ["a", "bad", "b"]})))


def test_panic_within_a_batch_is_located_by_bisection() -> None:
    def make(part: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        if 3 in part.column(0).to_pylist():
            raise Panic("three")
        return part, None

    batch = pa.record_batch({"n": range(8)})
    converted_batch: Converted = convert_or_bisect(batch, make, batch.schema, ValueError, lambda error, _: str(error))
    assert converted_batch.rejected == {3: "Panic: three"}
    assert converted_batch.records.num_rows == 7


@pytest.mark.parametrize("error", [Panic("boom"), ZeroDivisionError("boom")])
def test_error_of_a_source_fails_only_its_work_unit(error: Any) -> None:
    state = run_unit(ListSource(((GOOD,),), error))
    assert state.outcome is TaskOutcome.FAILED
    assert "boom" in state.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_cancellation_passes_through_a_work_unit(error: Any) -> None:
    with pytest.raises(type(error)):
        run_unit(ListSource(((GOOD,),), error))


@dataclass
class PanickingDecoder:
    """A decoder that raises an error at messages of one byte 0."""

    error: BaseException
    schema: pa.Schema = field(default_factory=lambda: pa.schema([("size", pa.int64())]))

    def decode(self, framed: Framed) -> Iterator[Decoded]:
        bodies = framed.messages().to_pylist()
        if b"\0" in bodies:
            raise self.error
        yield Decoded(pa.record_batch({"size": [len(body) for body in bodies]}), np.arange(len(bodies)), {})


def registry_converter(decoder: Decoder | BaseException) -> RegistryConverter:
    """Return a registry converter with that decoder, or with a decoder whose creation fails."""
    settings = converter()

    def decoder_of(writer: RegisteredSchema, reader: RegisteredSchema | None) -> Decoder:
        if isinstance(decoder, BaseException):
            raise decoder
        return decoder

    object.__setattr__(settings, "decoder", decoder_of)
    return settings


def converted(settings: RegistryConverter, values: list[bytes]) -> tuple[list[Any], dict[int, str]]:
    records: list[Any] = []
    rejected: dict[int, str] = {}
    for piece in convert_batch(settings, pa.record_batch({"value": values, "offset": range(len(values))})):
        records += piece.records.drop_columns(["offset"]).to_pylist()
        rejected |= piece.rejected
    return records, rejected


@pytest.mark.parametrize("error", [Panic("boom"), KeyError("boom"), RecursionError("boom")])
def test_panic_of_a_decoder_rejects_only_its_message(error: BaseException) -> None:
    header = b"\0\0\0\0\x01"
    values = [header + b"a", header + b"\0", header + b"bb", header + b"\0", header + b"ccc"]
    records, rejected = converted(registry_converter(PanickingDecoder(error)), values)
    assert records == [{"size": 1}, {"size": 2}, {"size": 3}]
    assert sorted(rejected) == [1, 3]
    assert "boom" in rejected[1]


@pytest.mark.parametrize("error", [Panic("boom"), KeyError("boom"), UnusableSchemaError("boom")])
def test_panic_at_a_schema_rejects_the_messages_of_that_schema(error: BaseException) -> None:
    records, rejected = converted(registry_converter(error), [message(1), message(2)])
    assert records == []
    assert sorted(rejected) == [0, 1]
    assert all("boom" in reason for reason in rejected.values())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), TimeLimitError("too long")])
def test_cancellation_and_time_limit_pass_through_a_decoder(error: BaseException) -> None:
    with pytest.raises(type(error)):
        converted(registry_converter(PanickingDecoder(error)), [b"\0\0\0\0\x01\0"])
    with pytest.raises(type(error)):
        converted(registry_converter(error), [message(1)])
