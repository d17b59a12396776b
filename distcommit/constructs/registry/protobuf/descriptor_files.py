"""Descriptors of registered Protobuf schemas, from `.proto` texts, or in Base64 as confluent-kafka for Python registers
them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import PurePosixPath

from google.protobuf import descriptor_pb2, descriptor_pool, message
from google.protobuf.descriptor import FileDescriptor

from distcommit.constructs.registry.protobuf.compiler import compile_texts
from distcommit.constructs.registry.protobuf.protoc_child import MAIN_FILE
from distcommit.constructs.registry.registry_client import RegisteredSchema, check_size
from distcommit.schemas.schema_size_limits import UnusableSchemaError

_MAX_NAME = 250
_MAX_NAME_PART = 120
_KNOWN_MODULES = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
}
"""Modules of Google's files, which Base64 descriptors lack."""


def file_of(registered: RegisteredSchema) -> FileDescriptor:
    """Return the descriptor of the schema's file and of all that it imports.

    Raises:
        UnusableSchemaError: if it can't be compiled, or refers to a file that is missing or has an invalid name.
        SchemaTooLargeError: if it exceeds a limit.
        ConfigurationError: if the compiler is needed and not installed.
    """
    check_size(registered)
    _check_names([name for name, _ in registered.references])
    files = {file.name: file for file in _described([*registered.references, (MAIN_FILE, registered.text)]).file}
    for file in [*files.values()]:
        for name in file.dependency:
            _add_google_file(name, files)
    pool = descriptor_pool.DescriptorPool()
    try:
        for name in TopologicalSorter({name: file.dependency for name, file in files.items()}).static_order():
            if name not in files:
                raise KeyError(f"{name!a:.100} is missing")
            pool.Add(files[name])
        return pool.FindFileByName(MAIN_FILE)
    except (TypeError, KeyError, CycleError) as error:
        raise UnusableSchemaError(f"its descriptor is not complete: {error}") from error


def _check_names(names: Iterable[str]) -> None:
    paths = set(names)
    for name in paths:
        parts = name.split("/")
        is_plain = name.isprintable() and "\\" not in name and len(name.encode(errors="replace")) <= _MAX_NAME
        is_short = all(len(part.encode(errors="replace")) <= _MAX_NAME_PART for part in parts)
        if not (is_plain and is_short) or name == MAIN_FILE or any(part in ("", ".", "..") for part in parts):
            raise UnusableSchemaError(f"it refers to a file with an invalid name: {name!a:.100}")
        for folder in PurePosixPath(name).parents:
            if str(folder) in paths:
                raise UnusableSchemaError(f"it refers to {name!a:.100}, and to one of its folders as a file")


def _described(texts: list[tuple[str, str]]) -> descriptor_pb2.FileDescriptorSet:
    existing = descriptor_pb2.FileDescriptorSet()
    uncompiled: list[tuple[str, str]] = []
    for name, text in texts:
        try:
            existing.file.append(_decoded(name, text))
        except (ValueError, message.DecodeError):
            uncompiled.append((name, text))
    if not uncompiled:
        return existing
    needed: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for file in existing.file:
        for dependency in file.dependency:
            _add_google_file(dependency, needed)
    existing.file.extend(needed.values())
    return compile_texts(uncompiled, existing)


def _decoded(name: str, text: str) -> descriptor_pb2.FileDescriptorProto:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    file.name = name
    return file


def _add_google_file(name: str, files: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
    if name in files or name not in _KNOWN_MODULES:
        return
    files[name] = descriptor_pb2.FileDescriptorProto()
    import_module(_KNOWN_MODULES[name]).DESCRIPTOR.CopyToProto(files[name])
    for dependency in files[name].dependency:
        _add_google_file(dependency, files)
