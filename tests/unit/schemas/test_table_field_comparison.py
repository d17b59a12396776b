"""Fields of tables compared with those of records and of data files."""

from __future__ import annotations

from typing import Any

import pytest

from distcommit.schemas.table_field_comparison import (
    InnerFields,
    TableField,
    missing_from_table,
    not_readable_from_files,
)

Kind = Any
"""A name; or the kind of a nested type, followed by its fields."""


def inner(kind: Kind) -> InnerFields[Kind]:
    return InnerFields() if isinstance(kind, str) else InnerFields(kind[0], kind[1:])


def holds(have: Kind, want: Kind) -> bool:
    return have == want or (have, want) == ("long", "int")


def column(name: str, kind: Kind, identity: str | int = "", *, required: bool = False, default: bool = False) -> Any:
    return TableField(identity or name, name, kind, required, default)


def struct(*fields: Any) -> Kind:
    return ("struct", *fields)


def items(kind: Kind) -> Kind:
    return ("list", column("element", kind))


@pytest.mark.parametrize(
    ("table", "records", "problems"),
    [
        (struct(column("a", "long")), struct(column("a", "int")), []),
        (struct(column("a", "int")), struct(column("a", "long")), ["column a is int, and records have long"]),
        (struct(column("a", "int"), column("b", "int", required=True)), struct(column("a", "int")), []),
        (struct(), struct(column("a", "int")), ["no column a"]),
        (struct(column("s", struct())), struct(column("s", struct(column("x", "int")))), ["no column s.x"]),
        (
            struct(column("l", items("int"))),
            struct(column("l", items("text"))),
            ["column l.element is int, and records have text"],
        ),
        (
            struct(column("l", "text")),
            struct(column("l", items("text"))),
            [f"column l is text, and records have {items('text')}"],
        ),
    ],
)
def test_columns_that_a_table_lacks_for_records_are_named(table: Kind, records: Kind, problems: list[str]) -> None:
    assert list(missing_from_table(table, records, inner, holds)) == problems


@pytest.mark.parametrize(
    ("table", "files", "problems"),
    [
        (struct(column("new", "long", 1)), struct(column("a", "int", 1)), []),
        (struct(column("a", "int", 2)), struct(column("a", "int", 1)), ["column a (id 1) was dropped"]),
        (struct(), struct(column("a", "int")), ["column a was dropped"]),
        (struct(column("a", "int", required=True)), struct(column("a", "int")), ["column a requires a value now"]),
        (struct(column("b", "int", required=True)), struct(), ["column b was added and requires a value"]),
        (struct(column("b", "int", required=True, default=True), column("c", "int")), struct(), []),
        (
            struct(column("l", items(struct(column("x", "int"))))),
            struct(column("l", items(struct(column("x", "long"))))),
            ["column l.element.x is int, and the files have long"],
        ),
    ],
)
def test_values_of_data_files_that_an_altered_table_does_not_show_are_named(
    table: Kind, files: Kind, problems: list[str]
) -> None:
    assert list(not_readable_from_files(table, files, inner, holds)) == problems
