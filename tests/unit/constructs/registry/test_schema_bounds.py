"""Bounds on registered schemas, for every format."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from distcommit.constructs.registry.client import FoundSchema
from distcommit.constructs.registry.schema_bounds import (
    MAX_COLUMNS,
    MAX_NESTING,
    MAX_REFERENCES,
    MAX_SCHEMA_BYTES,
    Expansion,
    SchemaTooLargeError,
    check_size,
)


def test_one_column_too_many_is_refused_with_the_bound() -> None:
    expansion = Expansion()
    for number in range(MAX_COLUMNS):
        with expansion.column(f"c{number}"):
            pass
    with pytest.raises(SchemaTooLargeError, match=f"more than {MAX_COLUMNS} columns"), expansion.column("last"):
        pass


def test_one_level_too_many_is_refused_with_the_bound_and_the_place() -> None:
    expansion = Expansion()
    with ExitStack() as stack:
        for number in range(MAX_NESTING):
            stack.enter_context(expansion.column(f"level{number}"))
        with pytest.raises(SchemaTooLargeError, match=f"more than {MAX_NESTING} levels deep at last"):
            stack.enter_context(expansion.column("last"))
    assert expansion.depth == 0


def test_text_and_references_are_bounded() -> None:
    with pytest.raises(SchemaTooLargeError, match=f"at most {MAX_REFERENCES}"):
        check_size(FoundSchema(1, "AVRO", "{}", (("a", "{}"),) * (MAX_REFERENCES + 1)))
    with pytest.raises(SchemaTooLargeError, match=f"at most {MAX_SCHEMA_BYTES}"):
        check_size(FoundSchema(1, "AVRO", " " * (MAX_SCHEMA_BYTES // 2), (("a", " " * (MAX_SCHEMA_BYTES // 2 + 1)),)))
    check_size(FoundSchema(1, "AVRO", "{}", (("a", "{}"),)))
