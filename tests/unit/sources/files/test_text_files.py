"""Text files of other programs: quotes, escapes, byte order marks, line ends, and files that are not such text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distcommit.sources.files import format_readers
from distcommit.sources.files.csv_dialect import Dialect
from distcommit.sources.files.csv_rows import problem_of, read_csv_rows, read_header
from distcommit.sources.files.source import FilesSource

BACKSLASH, PLAIN = Dialect(escape="\\"), Dialect(quote="")
GLUED = "text behind a closing quote"


def rows_of(data: bytes, dialect: Dialect = Dialect()) -> list[Any]:  # noqa: B008 - immutable
    """Return the rows of a CSV file with two columns; for a rejected row return the reason."""
    values: list[Any] = []
    for batch in format_readers.batches(io.BytesIO(data), "csv", False, dialect):
        for row in batch.to_pylist():
            bad, _ = row.pop("_unparsed", None), row.pop("_unparsed_line", None)
            values.append(tuple(row.values()) if bad is None else problem_of(bad, 2, dialect))
    return values


CSV: Sequence[tuple[str, Dialect, list[Any]]] = [
    ('1,"a \\"b\\" c"\n', Dialect(), [GLUED]),
    ('1,"a"b\n2,c\n', Dialect(), [GLUED, ("2", "c")]),
    ('"a" ,1\n', Dialect(), [GLUED]),
    ('1,""x\n', Dialect(), [GLUED]),
    ('"a,"b",c"\n', Dialect(), [GLUED]),
    ('1,"a ""b"" c"\n', Dialect(), [("1", 'a "b" c')]),
    ('1,"""a"""\n', Dialect(), [("1", '"a"')]),
    ('1,""\n', Dialect(), [("1", "")]),
    ('1,""""\n', Dialect(), [("1", '"')]),
    ('1,5" pipe\n', Dialect(), [("1", '5" pipe')]),
    ('1, "a"\n', Dialect(), [("1", ' "a"')]),
    ('"1","a,\nb"\r\n', Dialect(), [("1", "a,\nb")]),
    ('1,"a \\"b\\" c"\n', BACKSLASH, [("1", 'a "b" c')]),
    ("1,a\\,b\n", BACKSLASH, [("1", "a,b")]),
    ('1,"a\\"b"c\n2,d\n', BACKSLASH, [GLUED, ("2", "d")]),
    ("1,a\\\\\n", BACKSLASH, [("1", "a\\")]),
    ('1,"a\n2,b"\n', PLAIN, [("1", '"a'), ("2", 'b"')]),
    ("1,'a,''b'\n", Dialect(quote="'"), [("1", "a,'b")]),
    ('1,\\N\n2,"\\N"\n3,\n', Dialect(nulls=("\\N",)), [("1", None), ("2", "\\N"), ("3", "")]),
    ("1,\n", Dialect(nulls=("",)), [("1", None)]),
    ("1,NULL\n", Dialect(), [("1", "NULL")]),
    ("1,a\x00b\n", Dialect(), [("1", "a\x00b")]),
    ("", Dialect(), []),
]


@pytest.mark.parametrize(("text", "dialect", "right"), CSV)
@pytest.mark.parametrize("before", ["", "\ufeff"], ids=["", "bom"])
def test_csv_row_is_read_by_its_dialect_or_rejected(text: str, dialect: Dialect, right: list[Any], before: str) -> None:
    assert rows_of(f"{before}n,t\n{text}".encode(), dialect) == right


@pytest.mark.thorough
def test_glued_row_after_many_blocks_is_rejected_alone() -> None:
    count = 400_000
    data = b"n,t\n" + b'1,"abcdefgh"\n' * count + b'2,"a"b\n' + b'3,"c"\n'
    values = rows_of(data)
    assert values[:count] == [("1", "abcdefgh")] * count
    assert values[count:] == [GLUED, ("3", "c")]


SNAPSHOT_DELTAS = st.sampled_from(["a", '"', '""', ",", "\n", "\\", " ", '"b"', ',"c\nd",'])


@given(st.lists(SNAPSHOT_DELTAS, max_size=20), st.sampled_from([Dialect(), BACKSLASH, PLAIN, Dialect(nulls=("a",))]))
def test_block_reader_and_row_reader_return_the_same_rows(pieces: list[str], dialect: Dialect) -> None:
    data = f"n,t\n{''.join(pieces)}".encode()
    slow: list[Any] = []
    for batch in read_csv_rows(io.BytesIO(data), ["n", "t"], dialect, 0):
        for row in batch.to_pylist():
            bad, _ = row.pop("_unparsed", None), row.pop("_unparsed_line", None)
            slow.append(tuple(row.values()) if bad is None else problem_of(bad, 2, dialect))
    assert rows_of(data, dialect) == slow


@pytest.mark.parametrize("header", ['"a"b,c', '"a,c', '"a" ,c'])
def test_header_with_bad_quotes_fails_its_file(header: str) -> None:
    with pytest.raises(ValueError, match="its first row has"):
        read_header(io.BytesIO(f"{header}\n1,2\n".encode()), Dialect())


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be"])
def test_utf_16_file_fails_and_the_error_names_the_encoding(form: format_readers.FileFormat, coding: str) -> None:
    data = '\ufeffn,t\n{"n":1}\n'.encode(coding)
    with pytest.raises(ValueError, match="UTF-16"):
        list(format_readers.batches(io.BytesIO(data), form, False, Dialect()))


JSON_LINES: Sequence[tuple[bytes, list[bytes]]] = [
    (b'\xef\xbb\xbf{"n":1}\n', [b'{"n":1}']),
    (b'{"n":1}\r\n\r\n{"n":2}\r\n', [b'{"n":1}\r', b'{"n":2}\r']),
    (b'\r\n{"n":1}', [b'{"n":1}']),
    (b'\n\n{"n":1}\n\n', [b'{"n":1}']),
    (b'\xef\xbb\xbf\r\n{"n":1}\n', [b'{"n":1}']),
    (b"1\n2\n", [b"1", b"2"]),
    (b'{"n":1}\x00\n', [b'{"n":1}\x00']),
    (b'{"n":1,"n":2}\n', [b'{"n":1,"n":2}']),
    (b'{"n":NaN}\n', [b'{"n":NaN}']),
    (b"\xef\xbb\xbf", []),
    (b"\xef\xbb\xbf\n", []),
    (b"\r\n", []),
    (b"", []),
]


@pytest.mark.parametrize(("data", "right"), JSON_LINES)
def test_json_lines_are_separated_by_line_feeds_and_empty_lines_are_skipped(data: bytes, right: list[bytes]) -> None:
    values = format_readers.batches(io.BytesIO(data), "jsonl", False, Dialect())
    assert [value for batch in values for value in batch.column("value").to_pylist()] == right


@pytest.mark.parametrize("data", [b"n,t\n", b"n,t", b"\xef\xbb\xbfn,t\r\n", b"", b"\n\n"])
def test_csv_file_without_rows_has_no_rows(data: bytes) -> None:
    assert rows_of(data) == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"quote": ","}, "must differ from"),
        ({"escape": '"'}, "must differ from"),
        ({"escape": "\n"}, "not a line end"),
        ({"delimiter": "é"}, "ASCII"),
        ({"quote": "''"}, "quote"),
        ({"format": "jsonl", "nulls": ["NULL"]}, "format: csv"),
    ],
)
def test_incompatible_csv_settings_are_rejected(settings: dict[str, Any], problem: str) -> None:
    base = {"type": "files", "paths": ["/data/*.csv"], "dataset": "d", "format": "csv"}
    with pytest.raises(ValidationError, match=problem):
        FilesSource.model_validate({**base, **settings})
