"""Inputs of Avro, JSON Schema and JSON without declared fields."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distcommit.avro.container_format import block_bytes, header_bytes
from distcommit.avro.container_reader import read_batches
from distcommit.avro.datum_reader import AvroReader, parse
from distcommit.avro.lockstep_decoding import Datums
from distcommit.constructs.converters.json import JsonConverter
from distcommit.constructs.converters.registry_formats.json_schema import _JsonSchemaDecoder
from distcommit.constructs.registry.json_schema_columns import columns_of
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.wire_format import Framed
from distcommit.testing.fakes.convert_batch import convert_batch, unit_of
from tests.inputs.case import Case

ORDER = "tests/unit/pipeline/branches/test_restore_source_order.py"
HOSTILE = "tests/unit/constructs/registry/test_hostile_schemas.py"
SYNC = bytes(16)
Run = Callable[[Path], str]


def inferred(*values: str) -> Run:
    """Return the result of the last of these objects, read together."""

    def run(folder: Path) -> str:
        of = JsonConverter.model_validate({"type": "json", "keep_column": False})
        of.begin_work_unit(unit_of("a"))
        texts = pa.array([value.encode() for value in values], pa.binary())
        [converted] = convert_batch(of, pa.record_batch({"value": texts}))
        if (reason := converted.rejected.get(len(values) - 1)) is not None:
            return f"rejected: {reason.partition(':')[0]}"
        last = converted.records.to_pylist()[-1]
        return ", ".join(f"{name}={value}" for name, value in last.items())

    return run


def avro(kind: Any, body: bytes) -> Run:
    """Return the result of a datum of one field `x`."""

    def run(folder: Path) -> str:
        schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
        reader = AvroReader(parse(json.dumps(schema), []), None, "value")
        datums = Datums.of(np.frombuffer(body, np.uint8), np.array([0]), np.array([len(body)]))
        records, wrong = reader.read(datums)
        return f"rejected: {wrong[0]}" if wrong else str(records.to_pylist()[0]["x"])

    return run


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def sized(body: bytes) -> bytes:
    assert len(body) < 64
    return bytes([len(body) << 1]) + body


def container(codec: str, *blocks: tuple[int, bytes]) -> Run:
    """Return the number of records in a container file, or why it is rejected."""

    def run(folder: Path) -> str:
        schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
        header = header_bytes(json.dumps(schema).encode(), codec, SYNC)
        file = io.BytesIO(header + b"".join(block_bytes(*block, SYNC) for block in blocks))
        try:
            return f"{sum(batch.num_rows for batch in read_batches(file))} records"
        except ValueError as error:
            return f"rejected: {error}"

    return run


def snappy(plain: bytes, wrong: int = 0) -> bytes:
    body: bytes = pa.compress(plain, codec="snappy", asbytes=True)
    return body + (zlib.crc32(plain) ^ wrong).to_bytes(4, "big")


def json_schema(schema: Any, value: str) -> Run:
    """Return the result of a value of a property with that schema."""

    def run(folder: Path) -> str:
        root = {"type": "object", "properties": {"x": schema}}
        decoder = _JsonSchemaDecoder(*columns_of(RegisteredSchema(1, "JSON", json.dumps(root), ())))
        data = np.frombuffer(f'{{"x": {value}}}'.encode(), np.uint8)
        framed = Framed(1, data, np.array([0]), np.array([len(data)]), np.array([0]))
        [decoded] = decoder.decode(framed)
        return "rejected" if decoded.wrong else str(decoded.records.to_pylist()[0]["x"])

    return run


ROUNDED = "has more digits than float64 can represent"
CASES: list[Case] = [
    Case(
        "inferred-json", '{"a": 9223372036854775808}', "a=9223372036854775808", inferred('{"a": 9223372036854775808}')
    ),
    Case("inferred-json", '{"a": -10^37}', f"a=-{10**37}", inferred('{"a": -1%s}' % ("0" * 37))),
    Case("inferred-json", "1 beside 2^64", "a=1", inferred('{"a": 18446744073709551616}', '{"a": 1}')),
    Case(
        "inferred-json",
        "9007199254740993 beside 0.5",
        f"rejected: 9007199254740993 {ROUNDED}",
        inferred('{"a": 0.5}', '{"a": 9007199254740993}'),
    ),
    Case(
        "inferred-json",
        "9007199254740992 beside 0.5",
        "a=9007199254740992.0",
        inferred('{"a": 0.5}', '{"a": 9007199254740992}'),
    ),
    Case(
        "inferred-json",
        "0.12345678901234567890",
        f"rejected: 0.12345678901234567890 {ROUNDED}",
        inferred('{"a": 0.12345678901234567890}'),
    ),
    Case("inferred-json", "1e-400", f"rejected: 1e-400 {ROUNDED}", inferred('{"a": 1e-400}')),
    Case("inferred-json", "0.1", "a=0.1", inferred('{"a": 0.1}')),
    Case("inferred-json", "1e22", "a=1e+22", inferred('{"a": 1e22}')),
    Case("inferred-json", "a field named *", "*=1", inferred('{"*": 1}')),
    Case("inferred-json", "a field named * in an object", "a={'*': 1, 'b': 2}", inferred('{"a": {"*": 1, "b": 2}}')),
    Case("inferred-json", "fields named * and **", "*=1, **=2", inferred('{"*": 1, "**": 2}')),
    Case("avro-decimal", "1.00 in 20 bytes, sign-extended", "1.00", avro(decimal(9, 2), sized(bytes(19) + b"\x64"))),
    Case(
        "avro-decimal", "-1.00 in 20 bytes, sign-extended", "-1.00", avro(decimal(9, 2), sized(b"\xff" * 19 + b"\x9c"))
    ),
    Case(
        "avro-decimal",
        "2^128 in 17 bytes",
        "rejected: a decimal has more digits than its precision",
        avro(decimal(38, 0), sized(b"\1" + bytes(16))),
    ),
    Case(
        "avro-decimal",
        "20 bytes whose 17th bit is no sign",
        "rejected: a decimal has more digits than its precision",
        avro(decimal(38, 0), sized(b"\0\0\0\0\x80" + bytes(15))),
    ),
    Case("avro-decimal", "no bytes", "0.00", avro(decimal(9, 2), sized(b""))),
    Case("avro-file", "a Snappy block", "2 records", container("snappy", (2, snappy(b"\x02a\x02b")))),
    Case(
        "avro-file",
        "a Snappy block with a wrong checksum",
        "rejected: block 0 is damaged: OSError: its checksum is wrong",
        container("snappy", (2, snappy(b"\x02a\x02b", 1))),
    ),
    Case(
        "avro-file",
        "10^12 records in no bytes",
        "rejected: block 0 claims 1000000000000 records in 0 bytes, and at most 65536 more records than bytes are"
        " allowed",
        container("null", (10**12, b"")),
    ),
    Case("avro-file", "an empty block", "0 records", container("null", (0, b""))),
    Case(
        "avro-file",
        "a block that decompresses to 3 GB",
        "rejected, with the bound",
        test="tests/unit/avro/test_avro_containers.py::test_block_that_decompresses_to_gigabytes_is_rejected_within_the_bound",
    ),
    Case("json-schema", '{"const": 5}', "5", json_schema({"const": 5}, "5")),
    Case("json-schema", "a property {}", '{"b": [1.50]}', json_schema({}, '{"b": [1.50]}')),
    Case("json-schema", "a property true", "1", json_schema(True, "1")),
    Case("json-schema", "string or integer, text", '"x"', json_schema({"type": ["string", "integer"]}, '"x"')),
    Case("json-schema", "string or integer, number", "5", json_schema({"type": ["string", "integer"]}, "5")),
    Case("json-schema", "an enum of 1 and a", '"a"', json_schema({"enum": [1, "a"]}, '"a"')),
    Case("json-schema", "an array without items", "['1', '\"a\"']", json_schema({"type": "array"}, '[1, "a"]')),
    Case("json-schema", "a property {} that is null", "None", json_schema({}, "null")),
    Case("json-schema", "a lone surrogate in a property {}", "rejected", json_schema({}, '"\\ud800"')),
    Case("json-schema", "a lone surrogate in a string", "rejected", json_schema({"type": "string"}, '"\\ud800"')),
    Case(
        "order",
        "value, tombstone, value of one schema",
        "in source order",
        test=f"{ORDER}::test_tombstone_has_the_columns_of_the_record_before_it_in_one_piece",
    ),
    Case(
        "order",
        "two schemas that alternate, tombstones and bad records",
        "in source order",
        test=f"{ORDER}::test_registry_converter_keeps_interleaved_schemas_and_tombstones_in_order",
    ),
    Case(
        "order",
        "schema id 3 before schema id 1, incompatible",
        "1 is rejected",
        test=f"{ORDER}::test_first_schema_is_admitted_first_whatever_its_id",
    ),
    Case(
        "registry",
        "5,000 unknown schema ids",
        "the dataset fails alone, with the bound",
        test=f"{HOSTILE}::test_thousands_of_unschema_ids_fail_only_their_work_unit",
    ),
    Case(
        "registry",
        "400 schemas of one topic",
        "each is joined once",
        test=f"{HOSTILE}::test_admission_of_many_schemas_compares_each_with_the_others_once",
    ),
    Case(
        "registry",
        "a schema of 3 kB with millions of columns",
        "rejected, with the bound",
        test=f"{HOSTILE}::test_avro_schema_that_expands_to_millions_of_columns_is_rejected_at_once",
    ),
    Case(
        "registry",
        "a registry without any schema",
        "the records wait",
        test="tests/unit/constructs/registry/test_empty_registry.py::test_empty_registry_is_reported_as_an_outage",
    ),
    Case(
        "registry",
        "a recursive field that the pinned schema lacks",
        "passed over",
        test="tests/unit/constructs/registry/test_empty_registry.py::test_recursive_field_that_the_pinned_schema_lacks_is_skipped",
    ),
]
