"""CSV of other programs: encodings, missing and wrong headers, and damage, by the settings for them."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest
from pydantic import ValidationError

from distcommit.sources.files import csv_rows, format_readers
from distcommit.sources.files.csv_dialect import Dialect
from distcommit.sources.files.source import FilesSource

HEADLESS = Dialect(names=("n", "t"), has_header=False)


def rows_of(data: bytes | str, dialect: Dialect, *, is_compressed: bool = False) -> list[tuple[Any, ...]]:
    raw = data.encode() if isinstance(data, str) else data
    batches = format_readers.batches(io.BytesIO(raw), "csv", is_compressed, dialect)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [tuple(value for name, value in row.items() if name != "_unparsed_line") for row in rows]


@pytest.fixture(params=[8, 4 << 20])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (format_readers, csv_rows):
        monkeypatch.setattr(module, "_BLOCK_BYTES", request.param)
    return int(request.param)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", 'n;t\r\nä;"ö\r\nü;"\r\n1;2\r\n'),
        ("cp1252", 'n;t\n€;"ö\nü;"\n1;2\n'),
        ("utf-16", 'n;t\n€;"ö\nü;"\n1;2\n'),
        ("utf-16-le", 'n;t\n€;"ö\nü;"\n1;2\n'),
        ("utf-8", '\ufeffn;t\n€;"ö\nü;"\n1;2\n'),
        ("shift_jis", 'n;t\n日本;"語\n;"\n1;2\n'),
    ],
)
@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.usefixtures("block")
def test_text_in_another_encoding_is_read_as_unicode(encoding: str, text: str, is_compressed: bool) -> None:
    data = text.encode(encoding)
    rows = rows_of(
        gzip.compress(data) if is_compressed else data, Dialect(";", encoding=encoding), is_compressed=is_compressed
    )
    line = text.removeprefix("\ufeff").splitlines()[1]
    assert [row[0] for row in rows] == [line.split(";")[0], "1"]
    assert rows[0][1] in text
    assert rows[1][1] == "2"


@pytest.mark.usefixtures("block")
def test_bytes_that_the_encoding_does_not_have_make_the_file_unreadable() -> None:
    with pytest.raises(ValueError, match=r"not cp1252, in the .* bytes after byte"):
        rows_of(b"n;t\n1;2\n\x81;3\n", Dialect(";", encoding="cp1252"))
    with pytest.raises(ValueError, match=r"not utf-16.*truncated"):
        rows_of("n;t\n1;2\n".encode("utf-16")[:-1], Dialect(";", encoding="utf-16"))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("1,a\n2,b\n", [("1", "a"), ("2", "b")]),
        ("\ufeff1,a\r\n\r\n2,b", [("1", "a"), ("2", "b")]),
        ('"1","a\n"\n', [("1", "a\n")]),
        ("1,a\n2\n3,c\n", [("1", "a", None), (None, None, b"2"), ("3", "c", None)]),
        ("1,a,x\n", [(None, None, b"1,a,x")]),
        ("", []),
        ("\n\n", []),
    ],
)
@pytest.mark.usefixtures("block")
def test_file_without_a_header_has_the_columns_of_the_settings(text: str, rows: list[Any]) -> None:
    assert rows_of(text, HEADLESS) == rows


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("n,x", r"line 1: the header has the columns \['n', 'x'\]; it must have \['n', 't'\]"),
        ("\n\nn", "line 3: the header has the columns"),
        ("n,t,u", "line 1: the header has"),
        ("n,t,t", "line 1: two columns of one name: 't'"),
        ('n,"t', "line 1: its first row has a quote that is not closed"),
    ],
)
def test_wrong_header_is_reported_with_its_line(header: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        rows_of(f"{header}\n1,2\n", Dialect(names=("n", "t")))


def test_columns_of_a_header_may_have_another_order() -> None:
    assert rows_of("t,n\n1,2\n", Dialect(names=("n", "t"))) == [("1", "2")]


@pytest.mark.parametrize(
    ("data", "row", "line"),
    [
        ("n,t\n1,a\n2\n", 1, 3),
        ("\n\nn,t\r\n1,a\r\n\r\n2\r\n", 1, 6),
        ('n,t\n1,"a\nb\r\nc"\n2\n', 1, 5),
        ("n,t\r1,a\r2", 1, 3),
    ],
)
@pytest.mark.usefixtures("block")
def test_line_of_a_row_counts_empty_lines_and_line_breaks_in_quotes(data: str, row: int, line: int) -> None:
    batches = format_readers.batches(io.BytesIO(data.encode()), "csv", False, Dialect())
    lines = [read.get("_unparsed_line") for batch in batches for read in batch.to_pylist()]
    assert [(at, number) for at, number in enumerate(lines) if number is not None] == [(row, line)]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"header": False}, "must name the columns"),
        ({"columns": ["a", "a"]}, "must not have a name twice"),
        ({"encoding": "latin-99"}, "text encoding"),
        ({"encoding": "hex"}, "text encoding"),
        ({"format": "jsonl", "encoding": "latin-1"}, "format: csv"),
        ({"format": "parquet", "header": False, "columns": ["a"]}, "format: csv"),
        ({"on_unreadable_file": "ignore"}, "fail"),
    ],
)
def test_inconsistent_settings_of_messy_files_are_rejected(settings: dict[str, Any], problem: str) -> None:
    base = {"type": "files", "paths": ["/data/*.csv"], "dataset": "d", "format": "csv"}
    with pytest.raises(ValidationError, match=problem):
        FilesSource.model_validate({**base, **settings})
