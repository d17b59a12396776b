"""The `schema` converter: columns that each policy accepts beside the earlier ones, and agreement of concurrent
readers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from distcommit.app.job_file.built_in_types import validated
from distcommit.constructs.converters.schema import SchemaConverter
from distcommit.core.errors import CorruptError, RecordError
from distcommit.schemas.known_columns import Columns
from distcommit.testing.fakes.convert_batch import convert_batch, unit_of
from tests.unit.constructs.json_decoding.test_column_inference import SharedSchemas

FIRST = {"id": pa.int32(), "name": pa.string()}
WIDER = {"id": pa.int64(), "name": pa.string(), "new": pa.bool_()}
FEWER = {"id": pa.int32()}
OTHER = {"id": pa.string(), "name": pa.string()}
Written = Mapping[str, pa.DataType]


def converter(
    schema_store: SharedSchemas | None = None, known: Sequence[int] = (), urn: str = "a", **settings: Any
) -> SchemaConverter:
    converter_under_test = validated("converter", {"type": "schema", **settings})
    assert isinstance(converter_under_test, SchemaConverter)
    converter_under_test = SchemaConverter.model_validate(pickle.loads(pickle.dumps(converter_under_test)))
    converter_under_test.begin_work_unit(unit_of(urn))
    if schema_store is not None:
        converter_under_test.use_schema_store(schema_store)
    converter_under_test.load_schema_ids(known)
    return converter_under_test


def batch(of: Written) -> pa.RecordBatch:
    values = {pa.int32(): 1, pa.int64(): 2**40, pa.string(): "x", pa.bool_(): True}
    return pa.record_batch({name: pa.array([values[kind], None], kind) for name, kind in of.items()})


def convert(converter_under_test: SchemaConverter, of: Written) -> pa.RecordBatch | str:
    """Convert two records; return the batch, or the reason why both are rejected."""
    (result,) = convert_batch(converter_under_test, batch(of))
    if result.rejected:
        assert (set(result.rejected), result.records.num_rows) == ({0, 1}, 0)
        return result.rejected[0]
    return result.records


@pytest.mark.parametrize(
    ("columns", "taken", "reason"),
    [
        ([FIRST, FIRST], [True, True], ""),
        ([FIRST, dict(reversed(FIRST.items()))], [True, True], ""),
        ([FIRST, WIDER, FIRST, FEWER], [True, True, True, True], ""),
        ([FIRST, OTHER, WIDER], [True, False, True], "id is string here, and int32 before"),
        ([WIDER, {"id": pa.int64(), "new": pa.string()}], [True, False], "new is string here, and bool before"),
        ([FEWER, WIDER, {"new": pa.string()}], [True, True, False], "new is string here, and bool before"),
    ],
    ids=["the same", "in another order", "compatible ones", "another one", "another one of few", "of any before"],
)
def test_evolve_accepts_compatible_columns_unchanged(
    columns: Sequence[Written], taken: Sequence[bool], reason: str
) -> None:
    converter_under_test = converter(SharedSchemas())
    for written, goes in zip(columns, taken, strict=True):
        result = convert(converter_under_test, written)
        assert result == batch(written) if goes else result == f"not compatible with earlier records: {reason}"


def test_schemas_of_one_work_unit_bind_the_run_s_other_work_units_and_later_runs() -> None:
    schema_store = SharedSchemas()
    one, two = converter(schema_store), converter(schema_store)
    assert convert(one, FIRST) == batch(FIRST)
    assert "id is string here, and int32 before" in convert(two, OTHER)
    assert convert(two, WIDER) == batch(WIDER)
    assert convert(one, FIRST) == batch(FIRST)
    assert (one.schema_ids(), two.schema_ids()) == ((1,), (1, 2))
    later = converter(schema_store, known=(1, 2))
    assert "id is string here, and int64 before" in convert(later, OTHER)
    assert convert(later, FEWER) == batch(FEWER)
    assert later.schema_ids() == (1, 2)
    assert len(schema_store.put) == 2
    assert schema_store.put[2]["columns"] == {"id": "int64", "name": "string", "new": "bool"}


def test_pin_converts_records_to_the_known_columns() -> None:
    schema_store = SharedSchemas()
    convert(converter(schema_store), FIRST)
    pinned = converter(schema_store, known=(1,), evolution="pin")
    result = convert(pinned, FEWER)
    assert isinstance(result, pa.RecordBatch)
    assert result.to_pydict() == {"id": [1, None], "name": [None, None]}
    assert result.schema == batch(FIRST).schema
    result = convert(pinned, {"more": pa.bool_(), "name": pa.string(), "id": pa.int32()})
    assert result == batch(FIRST)
    assert convert(pinned, WIDER) == "can't be read with the pinned columns: id is int64 here, and int32 before"
    assert pinned.schema_ids() == (1,)
    wide = converter(SharedSchemas(), evolution="pin")
    convert(wide, WIDER)
    result = convert(wide, FIRST)
    assert isinstance(result, pa.RecordBatch)
    assert result["id"].to_pylist() == [1, None]
    assert result.schema == batch(WIDER).schema
    strict = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    converter_under_test = converter(SharedSchemas(), evolution="pin")
    list(convert_batch(converter_under_test, pa.record_batch([pa.array([1], pa.int32())], schema=strict)))
    assert "id is missing, and is not nullable" in convert(converter_under_test, {"name": pa.string()})


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (WIDER, "found new is new; id is int64 here, and int32 before"),
        (FEWER, "found name is missing"),
        (OTHER, "found id is string here, and int32 before"),
    ],
)
def test_evolution_fail_fails_the_work_unit_at_any_other_schema(written: Written, reason: str) -> None:
    schema_store = SharedSchemas()
    convert(converter(schema_store, evolution="fail"), FIRST)
    with pytest.raises(RecordError, match=f"evolution is fail.*expected columns id, name; {reason}"):
        convert(converter(schema_store, evolution="fail"), written)
    assert convert(converter(schema_store, known=(1,), evolution="fail"), FIRST) == batch(FIRST)
    assert len(schema_store.put) == 1


def test_incompatible_schema_fails_the_work_unit_or_is_accepted_as_configured() -> None:
    schema_store = SharedSchemas()
    convert(converter(schema_store), FIRST)
    with pytest.raises(RecordError, match=r"on_incompatible is fail.*id is string here, and int32 before"):
        convert(converter(schema_store, known=(1,), on_incompatible="fail"), OTHER)
    letting = converter(schema_store, known=(1,), on_incompatible="accept")
    assert convert(letting, OTHER) == batch(OTHER)
    assert letting.schema_ids() == (1, 2)
    assert "id is int32 here, and string before" in convert(converter(schema_store, known=(1, 2)), FIRST)


def test_datasets_may_override_the_policy() -> None:
    own = [{"match": "b*", "evolution": "fail"}, {"match": "c", "on_incompatible": "accept"}]
    for urn, fails in {"a": False, "b1": True, "c": False}.items():
        converter_under_test = converter(SharedSchemas(), urn=urn, datasets=own)
        convert(converter_under_test, FIRST)
        if fails:
            with pytest.raises(RecordError):
                convert(converter_under_test, WIDER)
        else:
            assert convert(converter_under_test, WIDER) == batch(WIDER)
    with pytest.raises(ValidationError, match="on_incompatible must only be set with evolution: evolve"):
        SchemaConverter.model_validate({"type": "schema", "evolution": "pin", "on_incompatible": "accept"})


def test_columns_are_known_before_records_are_read_unless_pinned() -> None:
    columns = Columns.of(batch(FIRST).schema)
    assert converter().convert_columns(columns) == columns
    assert converter(evolution="fail").convert_columns(Columns()) == Columns()
    assert converter(evolution="pin").convert_columns(columns) == Columns()
    assert converter(datasets=[{"match": "x", "evolution": "pin"}]).convert_columns(columns) == Columns()


@pytest.mark.parametrize("damaged", [{}, {"arrow": "%"}, {"arrow": "AAAA"}, {"arrow": 7}])
def test_corrupt_stored_schema_raises(damaged: Mapping[str, Any]) -> None:
    with pytest.raises(CorruptError, match="can't be read"):
        convert(converter(SharedSchemas({1: damaged}), known=(1,)), FIRST)
