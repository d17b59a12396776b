"""Small schemas that expand to millions of columns, too many schemas, and unknown ids: each error names its bound."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pytest

from distcommit.avro.datum_reader import AvroReader, parse
from distcommit.constructs.registry.json_schema_columns import columns_of
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.registry_converter import MAX_UNKNOWN
from distcommit.constructs.registry.registry_schema_policy import AdmittedSchemas, EvolutionSettings
from distcommit.core.errors import RecordError
from distcommit.schemas.evolution import nullable
from distcommit.schemas.schema_size_limits import MAX_SCHEMAS, SchemaTooLargeError
from distcommit.testing.fakes.convert_batch import convert_batch, unit_of
from tests.unit.avro.test_avro_datums import record
from tests.unit.constructs.registry.test_registry_schema_policy import Dicts, batch_of, converter, message

POLICY = EvolutionSettings()


def doubled(levels: int, union: bool = False) -> dict[str, Any]:
    """Return a schema in which each type has two fields of the type before it."""
    fields: Any = "long"
    for level in range(levels):
        name = f"L{level}"
        below = [{"name": side, "type": fields if side == "a" else _again(fields)} for side in ("a", "b")]
        fields = {"type": "record", "name": name, "fields": below}
        if union and level < levels - 1:
            fields = ["null", "string", fields]
    assert isinstance(fields, dict)
    return fields


def _again(kind: Any) -> Any:
    match kind:
        case list():
            return [_again(branch) for branch in kind]
        case dict():
            return kind["name"]
    return kind


@pytest.mark.thorough
@pytest.mark.parametrize("union", [False, True])
def test_avro_schema_that_expands_to_millions_of_columns_is_rejected_at_once(union: bool) -> None:
    text = json.dumps(doubled(20, union))
    assert len(text) < 3000
    began_s = time.perf_counter()
    with pytest.raises(SchemaTooLargeError, match="more than 10000 columns"):
        AvroReader(parse(text, []), None, "value")
    with pytest.raises(SchemaTooLargeError, match="more than 10000 columns"):
        AvroReader(parse(text, []), parse(text, []), "value")
    assert time.perf_counter() - began_s < 10


def test_nested_unions_of_several_records_are_expanded_once() -> None:
    """Each branch of a union was once expanded again for each branch."""
    nested_type: Any = "long"
    for level in range(5):
        fields = [{"name": "a", "type": nested_type}]
        nested_type = ["null", "string", "int", {"type": "record", "name": f"R{level}", "fields": fields}]
    reader = AvroReader(parse(json.dumps(record(("x", nested_type))), []), None, "value")
    assert reader.schema.names == ["x"]


@pytest.mark.parametrize("size", [70_000, 2**31 - 1, 2**62])
def test_optional_fixed_of_any_size_takes_no_memory_for_nulls(size: int) -> None:
    schema = record(("x", ["null", {"type": "fixed", "name": "F", "size": size}]))
    with pytest.raises(SchemaTooLargeError, match="at most 65536"):
        AvroReader(parse(json.dumps(schema), []), None, "value")


def test_json_schema_that_expands_to_millions_of_columns_is_rejected() -> None:
    definitions: dict[str, Any] = {"L0": {"type": "integer"}}
    for level in range(1, 30):
        below = {"$ref": f"#/definitions/L{level - 1}"}
        definitions[f"L{level}"] = {"type": "object", "properties": {"a": below, "b": below}}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/definitions/L29"}}, "definitions": definitions}
    with pytest.raises(SchemaTooLargeError, match=r"more than 10000 columns|more than 64 levels"):
        columns_of(RegisteredSchema(1, "JSON", json.dumps(schema), ()))


def columns(number: int) -> pa.Schema:
    return nullable(pa.schema([("x", pa.int64()), (f"c{number}", pa.string())]))


def test_admission_of_many_schemas_compares_each_with_the_others_once() -> None:
    asked: list[int] = []

    def of(number: int) -> pa.Schema:
        asked.append(number)
        return columns(number)

    admitted = AdmittedSchemas()
    for number in range(400):
        assert admitted.admit(number, columns(number), of, POLICY) == ""
    assert len(asked) < 3 * 400
    assert "x is string" in admitted.admit(400, pa.schema([("x", pa.string())]), of, POLICY)
    assert "c7 is int64" in admitted.admit(401, pa.schema([("c7", pa.int64())]), of, POLICY)


def test_dataset_with_too_many_schemas_is_rejected_with_the_bound() -> None:
    admitted = AdmittedSchemas(list(range(1, MAX_SCHEMAS + 1)))
    assert admitted.admit(1, columns(1), lambda _: columns(1), POLICY) == ""
    assert f"have {MAX_SCHEMAS} schemas" in admitted.admit(MAX_SCHEMAS + 1, columns(1), lambda _: columns(1), POLICY)


def test_schemas_of_a_dataset_with_too_many_columns_are_rejected_with_the_bound() -> None:
    admitted = AdmittedSchemas()
    some = {n: pa.schema([(f"c{n}_{i}", pa.int64()) for i in range(6000)]) for n in (1, 2)}
    assert admitted.admit(1, some[1], some.get, POLICY) == ""
    assert "more than 10000 columns" in admitted.admit(2, some[2], some.get, POLICY)


def test_thousands_of_unschema_ids_fail_only_their_work_unit() -> None:
    registry = Dicts()
    converter_under_test = converter(registry)
    converter_under_test.begin_work_unit(unit_of("hostile"))
    values = [b"\0" + (1000 + n).to_bytes(4, "big") + b"x" for n in range(5000)]
    with pytest.raises(RecordError, match="too many schema ids") as raised:
        list(convert_batch(converter_under_test, batch_of(values)))
    assert raised.value.expected == f"at most {MAX_UNKNOWN}"
    assert len(registry.asked) == MAX_UNKNOWN + 1
    converter_under_test.begin_work_unit(unit_of("orders"))
    [piece] = convert_batch(converter_under_test, batch_of([message(1), values[0]]))
    assert (piece.records.num_rows, list(piece.rejected)) == (1, [1])
