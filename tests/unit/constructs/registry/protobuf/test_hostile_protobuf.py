"""Hostile Protobuf schemas: none executes code or exhausts the machine, and each fails with the schema error."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from distcommit.constructs.registry.protobuf.descriptor_files import file_of
from distcommit.constructs.registry.protobuf.protobuf_decoder import ProtobufDecoder, schema_of
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.schemas.schema_size_limits import MAX_COLUMNS, MAX_NESTING, SchemaTooLargeError, UnusableSchemaError
from tests.unit.constructs.registry.protobuf.protobuf_values import decoded, text_schema

POLYGLOT = """syntax = "proto3" // open({path!r}, "w").write("executed") \\
;
"""
"""Valid for protoc, which reads it as a comment, and for Python, which executes it."""


@pytest.mark.parametrize(
    "name",
    ["grpc_tools/__init__.py", "grpc_tools/protoc.py", "google/__init__.py", "json.py", "sitecustomize.py", "os.py"],
)
def test_reference_named_like_a_python_module_is_not_imported(name: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    text = f'import os; syntax = "x"\nopen({str(proof)!r}, "w").write("executed")\n'
    with pytest.raises(UnusableSchemaError):
        file_of(text_schema('syntax = "proto3"; message M {}', (name, text)))
    assert not proof.exists()


def test_reference_valid_as_proto_and_as_python_is_compiled_and_not_executed(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    polyglot = POLYGLOT.format(path=str(proof))
    compile(polyglot, "polyglot.py", "exec")
    main = 'syntax = "proto3"; import "grpc_tools/__init__.py"; message M { int32 x = 1; }'
    file = file_of(text_schema(main, ("grpc_tools/__init__.py", polyglot)))
    assert file.dependencies[0].name == "grpc_tools/__init__.py"
    assert not proof.exists()


def test_descriptor_that_names_a_module_does_not_import_it() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", dependency=["google/protobuf/internal/builder.proto"])
    text = base64.b64encode(file.SerializeToString()).decode()
    with pytest.raises(UnusableSchemaError, match="is missing"):
        file_of(RegisteredSchema(1, "PROTOBUF", text, ()))


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../x.proto",
        "a/../../x.proto",
        "a//b.proto",
        "a\0b.proto",
        "a\nb.proto",
        "\ud800.proto",
        "a\\b.proto",
        "x" * 300,
        "/".join(["y" * 100] * 5),
        "distcommit-registered.proto",
    ],
    ids=ascii,
)
def test_invalid_reference_name_raises_the_schema_error(name: str) -> None:
    with pytest.raises(UnusableSchemaError):
        file_of(text_schema('syntax = "proto3"; message M {}', (name, 'syntax = "proto3";')))


def test_reference_beside_its_own_folder_raises_the_schema_error() -> None:
    references = (("a", 'syntax = "proto3";'), ("a/b", 'syntax = "proto3";'))
    with pytest.raises(UnusableSchemaError, match="folder"):
        file_of(text_schema('syntax = "proto3"; message M {}', *references))


@pytest.mark.parametrize("imported", ["/etc/passwd", "../../etc/passwd", "known.descriptors", "compiled.descriptors"])
def test_import_of_a_file_of_the_machine_raises_the_schema_error(imported: str) -> None:
    with pytest.raises(UnusableSchemaError):
        file_of(text_schema(f'syntax = "proto3"; import "{imported}"; message M {{}}'))


@pytest.mark.parametrize("text", ["\ud800", "", "\0", "{" * 100_000, 'syntax = "proto3"; ' + "message M {" * 5000])
def test_invalid_schema_text_raises_the_schema_error(text: str) -> None:
    with pytest.raises(UnusableSchemaError):
        schema_of(text_schema(text), None)


def test_files_that_import_each_other_raise_the_schema_error() -> None:
    files = [descriptor_pb2.FileDescriptorProto(name=name, dependency=[other]) for name, other in ("ab", "ba")]
    texts = [base64.b64encode(file.SerializeToString()).decode() for file in files]
    main = descriptor_pb2.FileDescriptorProto(name="m", dependency=["a"])
    main_text = base64.b64encode(main.SerializeToString()).decode()
    with pytest.raises(UnusableSchemaError, match="not complete"):
        file_of(RegisteredSchema(1, "PROTOBUF", main_text, (("a", texts[0]), ("b", texts[1]))))


def doubling(levels: int, width: int) -> str:
    """Return a schema in which each message contains the next one several times."""
    messages = [
        f"message M{level} {{ {''.join(f'M{level + 1} f{n} = {n};' for n in range(1, width + 1))} }}"
        for level in range(levels)
    ]
    return f'syntax = "proto3"; {" ".join(messages)} message M{levels} {{ int32 x = 1; }}'


def mutually_containing(count: int) -> str:
    """Return a schema in which each message contains all others."""
    messages = [
        f"message M{one} {{ int32 x = 100; {''.join(f'M{other} f{other} = {other + 1};' for other in range(count))} }}"
        for one in range(count)
    ]
    return f'syntax = "proto3"; {" ".join(messages)}'


@pytest.mark.parametrize(
    "text", [doubling(20, 3), doubling(7, 10), mutually_containing(12)], ids=["ternary", "decimal", "all"]
)
def test_small_schema_of_millions_of_columns_is_rejected_with_the_bound(text: str) -> None:
    assert len(text) < 3500
    file = file_of(text_schema(text))
    began_s = time.process_time()
    with pytest.raises(SchemaTooLargeError, match=f"more than {MAX_COLUMNS} columns"):
        ProtobufDecoder(file, None)
    assert time.process_time() - began_s < 5


def test_pinned_schema_of_millions_of_columns_is_rejected_with_the_bound() -> None:
    file = file_of(text_schema(doubling(20, 3)))
    with pytest.raises(SchemaTooLargeError, match=f"more than {MAX_COLUMNS} columns"):
        ProtobufDecoder(file, file)


def test_schema_nested_too_deep_is_rejected_with_the_bound() -> None:
    with pytest.raises(SchemaTooLargeError, match=f"more than {MAX_NESTING} levels deep"):
        schema_of(text_schema(doubling(MAX_NESTING + 1, 1)), None)


def test_message_nested_too_deep_is_rejected_alone() -> None:
    decoder = schema_of(text_schema('syntax = "proto3"; message M { M m = 1; int32 x = 2; }'), None)
    deep = b""
    for _ in range(200):
        size = len(deep)
        deep = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + deep
    assert decoded(decoder, [deep, b"\x10\x05"]) == ["rejected", {"m": None, "x": 5}]


def test_small_message_of_millions_of_values_is_rejected_alone_with_the_bound() -> None:
    fields = " ".join(f"int32 x{number} = {number};" for number in range(1, 1001))
    decoder = schema_of(
        text_schema(f'syntax = "proto3"; message M {{ repeated L l = 1; }} message L {{ {fields} }}'), None
    )
    results = decoded(decoder, [b"\x0a\x00" * 10_000, b"\x0a\x00"])
    assert results[0] == "rejected"
    assert len(results[1]["l"]) == 1


def test_message_whose_bytes_contain_many_values_is_read() -> None:
    decoder = schema_of(text_schema('syntax = "proto3"; message M { repeated int32 n = 1; }'), None)
    size = 1_000_000
    assert len(decoded(decoder, [b"\x0a\xc0\x84\x3d" + b"\x01" * size])[0]["n"]) == size
