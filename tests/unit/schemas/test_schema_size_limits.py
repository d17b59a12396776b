"""Bounds on registered schemas, for every format."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from distcommit.constructs.registry.registry_client import (
    MAX_REFERENCES,
    RegisteredSchema,
    Registry,
    RegistrySettings,
    check_size,
)
from distcommit.schemas.schema_size_limits import (
    MAX_COLUMNS,
    MAX_NESTING,
    MAX_SCHEMA_BYTES,
    Expansion,
    SchemaTooLargeError,
    UnusableSchemaError,
)


def test_too_many_columns_are_rejected_with_the_bound() -> None:
    expansion = Expansion()
    for number in range(MAX_COLUMNS):
        with expansion.column(f"c{number}"):
            pass
    with pytest.raises(SchemaTooLargeError, match=f"more than {MAX_COLUMNS} columns"), expansion.column("last"):
        pass


def test_too_many_levels_are_rejected_with_the_bound_and_the_place() -> None:
    expansion = Expansion()
    with ExitStack() as stack:
        for number in range(MAX_NESTING):
            stack.enter_context(expansion.column(f"level{number}"))
        with pytest.raises(SchemaTooLargeError, match=f"more than {MAX_NESTING} levels deep at last"):
            stack.enter_context(expansion.column("last"))
    assert expansion.depth == 0


def test_size_of_text_and_references_is_bounded() -> None:
    with pytest.raises(SchemaTooLargeError, match=f"at most {MAX_REFERENCES}"):
        check_size(RegisteredSchema(1, "AVRO", "{}", (("a", "{}"),) * (MAX_REFERENCES + 1)))
    with pytest.raises(SchemaTooLargeError, match=f"at most {MAX_SCHEMA_BYTES}"):
        check_size(
            RegisteredSchema(1, "AVRO", " " * (MAX_SCHEMA_BYTES // 2), (("a", " " * (MAX_SCHEMA_BYTES // 2 + 1)),))
        )
    check_size(RegisteredSchema(1, "AVRO", "{}", (("a", "{}"),)))


class EndlessReferences:
    """A registry client whose schemas each refer to another one."""

    def get_schema(self, schema_id: int) -> Any:
        return self.get_version("s", 0).schema

    def get_version(self, subject: str, version: int) -> Any:
        reference = SimpleNamespace(name=f"r{version + 1}", subject=subject, version=version + 1)
        return SimpleNamespace(schema=SimpleNamespace(references=[reference], schema_str="{}", schema_type="AVRO"))


def test_endless_references_are_rejected_with_the_bound() -> None:
    registry = Registry(RegistrySettings(url="http://127.0.0.1:1"))
    registry.__dict__["_client"] = EndlessReferences()
    with pytest.raises(UnusableSchemaError, match=f"more than {MAX_REFERENCES} schemas"):
        registry.schema(1)
