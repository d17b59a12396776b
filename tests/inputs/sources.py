"""Inputs of the sources: pages of REST servers, files, cast texts and Kafka timestamps."""

from __future__ import annotations

import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from distcommit.core.errors import ConfigurationError, SourceError
from distcommit.sources.files import format_readers
from distcommit.sources.files.csv_dialect import Dialect
from tests.inputs.case import Case
from tests.unit.app.job_file.test_loops import APART, LOOPS, parsed
from tests.unit.constructs.converters.test_cast import CASTS, REJECTED, array_of, cast_to
from tests.unit.sources.files.test_text_files import CSV, JSON_LINES, rows_of
from tests.unit.sources.rest.rest_pages import TIMES, UNIQUE, Pages, paging_of, read_from, values_of
from tests.unit.sources.rest.test_rest_text import LONE


def _rest(*pages: Any, records: str = "", times: bool = False, **paging: Any) -> Callable[[Path], str]:
    def run(_: Path) -> str:
        try:
            return str(read_from(Pages(*pages), TIMES if times else UNIQUE, records, paging_of(**paging)))
        except SourceError as error:
            return f"rejected: {error.text.partition(' [')[0]}"

    return run


def _page(*numbers: Any) -> list[dict[str, Any]]:
    return [{"i": number} for number in numbers]


def _total(total: Any, *numbers: int) -> dict[str, Any]:
    return {"total": total, "rows": _page(*numbers)}


_AT = "2024-01-01T00:00:00Z"
_BY_TOTAL: dict[str, Any] = {"records": "rows", "until": "total", "path": "total"}
_UNREADABLE = "rejected: an answer can't be read"

_REST = [
    Case("rest", "unique 1, 2 and then 2, 3", "[1, 2, 3]", _rest(_page(1, 2), _page(2, 3))),
    Case("rest", "unique 1, 1 in one page", "[1]", _rest(_page(1, 1))),
    Case(
        "rest", "unique 1 with n = 1, then 1 with n = 2",
        "rejected: the server returned two different records of one value",
        _rest([{"i": 1, "n": 1}], [{"i": 1, "n": 2}]),
    ),
    Case(
        "rest", "a time at the end of a page, the same record on the next",
        "rejected: a page repeats a record of the page before, which would be published twice",
        _rest(_page(_AT), [*_page(_AT), {"i": _AT, "n": 2}], times=True),
    ),
    Case("rest", "an empty page between two others", "rejected: a page without records is not the last one",
         _rest(_page(1), [], _page(2))),
    Case("rest", "an empty first page before another one", "rejected: a page without records is not the last one",
         _rest([], _page(2))),
    Case("rest", "an empty page in the middle, until: total", "[1, 2]",
         _rest(_total(3, 1), _total(3), _total(3, 2), **_BY_TOTAL)),
    Case("rest", "total of 3 records in pages of 2", "[1, 2, 3]",
         _rest(_total(3, 1, 2), _total(3, 3), _total(3, 9), size=2, **_BY_TOTAL)),
    Case("rest", "a total that is text", _UNREADABLE, _rest(_total("3", 1), **_BY_TOTAL)),
    Case("rest", "no total in an answer", _UNREADABLE, _rest({"rows": _page(1)}, **_BY_TOTAL)),
    Case(
        "rest", "a total of 5, then of 4",
        "rejected: the server's total shrank between two pages: records were deleted, and unread ones moved up",
        _rest(_total(5, 1, 2), _total(4, 4, 5), size=2, **_BY_TOTAL),
    ),
    Case("rest", "a page of 1 record where 2 are full, until: short_page", "[1, 2, 3]",
         _rest(_page(1, 2), _page(3), _page(9), until="short_page", size=2)),
]  # fmt: skip


def _cast(kind: pa.DataType, written: str, value: Any) -> Callable[[Path], str]:
    def run(_: Path) -> str:
        result = cast_to(written, array_of(kind, [value]))
        value_found = result.records.column("amount")[0].as_py() if result.records.num_rows else REJECTED
        return f"{value_found:f}" if isinstance(value_found, Decimal) else str(value_found)

    return run


def _text(right: Any, written: str) -> str:
    scale = int(written.partition(", ")[2].rstrip(")") or 0)
    return f"{right:.{scale}f}" if isinstance(right, Decimal) else str(right)


_CASTS = [
    Case("cast", f"{kind} {value!r:.60} to {written}", _text(right, written), _cast(kind, written, value))
    for kind, written, value, right in CASTS
]


def _loop(source: dict[str, Any], sink: dict[str, Any]) -> Callable[[Path], str]:
    def run(folder: Path) -> str:
        try:
            parsed(source, sink, folder)
        except ConfigurationError as error:
            return "rejected: a loop" if "which the source reads" in str(error) else str(error)
        return "accepted"

    return run


def _pair(source: dict[str, Any], sink: dict[str, Any]) -> str:
    read = source.get("topics") or source.get("topic_patterns") or source.get("tables") or source.get("table_patterns")
    read = read or [*source.get("queries", {}).values()]
    written = sink.get("topic") or sink.get("table") or sink["type"]
    of = source.get("format", source["type"])
    where = sink.get("schema", sink.get("url", "")) or source.get("schema", "")
    return f"{of} {read or source.get('datasets')} to {sink['type']} {written} {where} {source.get('schema', '')}"[:120]


_TIMESTAMPS = "tests/unit/sources/kafka/test_kafka_timestamps.py::"
_KAFKA = [
    *(Case("loops", _pair(*pair), "rejected: a loop", _loop(*pair)) for pair in LOOPS),
    *(Case("loops", f"apart: {_pair(*pair)}"[:120], "accepted", _loop(*pair)) for pair in APART),
    Case("kafka", "timestamp -1", "null", test=_TIMESTAMPS + "test_record_without_a_timestamp_has_none"),
    Case("kafka", "timestamp -2000", "1969-12-31T23:59:58Z", test=_TIMESTAMPS + "test_times_before_1970_are_kept"),
]

_HOSTILE = "tests/unit/sources/rest/test_hostile_servers.py::"
_SLOW = _HOSTILE + "test_answer_that_takes_too_long_fails_and_the_error_names_the_bound"
_LARGE = _HOSTILE + "test_body_too_large_after_decompression_fails_and_the_error_names_the_bound"
_REGISTRY = _HOSTILE + "test_hostile_registry_counts_as_unavailable"
_SERVERS = [
    Case("rest", "a body of one byte each 20 ms", "rejected: source.response_timeout_s", test=_SLOW),
    Case("rest", "a header of one byte each 20 ms", "rejected: source.response_timeout_s", test=_SLOW),
    Case("rest", "a body without an end", "rejected: at most 268,435,456 bytes", test=_LARGE),
    Case("rest", "260 MiB of blanks, compressed", "rejected: at most 268,435,456 bytes", test=_LARGE),
    Case("rest", "Content-Encoding: gzip, gzip", "rejected: compressed more than once",
         test=_HOSTILE + "test_body_compressed_more_than_once_fails"),
    Case("registry", "a body or header of one byte each 20 ms", "an outage, with the bound", test=_REGISTRY),
    Case("registry", "a body without an end", "an outage, with the bound", test=_REGISTRY),
    Case("registry", "17 MiB of blanks, compressed", "an outage, with the bound", test=_REGISTRY),
    Case("registry", "a redirect", "an outage: it is not followed", test=_REGISTRY),
]  # fmt: skip


def _csv(data: bytes, dialect: Dialect) -> Callable[[Path], str]:
    return lambda _: str(rows_of(data, dialect))


def _lines(data: bytes) -> Callable[[Path], str]:
    def run(_: Path) -> str:
        batches = format_readers.batches(io.BytesIO(data), "jsonl", False, Dialect())
        return str([value for batch in batches for value in batch.column("value").to_pylist()])

    return run


def _written(dialect: Dialect) -> str:
    if dialect == Dialect():
        return ""
    return f" (quote {dialect.quote!r}, escape {dialect.escape!r}, nulls {list(dialect.nulls)})"


def _lone(record: bytes) -> Callable[[Path], str]:
    return lambda _: str(values_of(Pages(b"[" + record + b"]")))


_TEXT_FILES = "tests/unit/sources/files/test_text_files.py::"
_UTF_16 = "rejected: it is UTF-16; it must be UTF-8"
_FILES = [
    *(
        Case("csv", f"{text!r}{_written(dialect)}"[:120], str(right), _csv(f"n,t\n{text}".encode(), dialect))
        for text, dialect, right in CSV
    ),
    *(Case("json-lines", repr(data)[:120], str(right), _lines(data)) for data, right in JSON_LINES),
    *(Case("rest", repr(record)[:120], str([record]), _lone(record)) for record in LONE),
    Case(
        "csv", "a file of UTF-16", _UTF_16, test=_TEXT_FILES + "test_utf_16_file_fails_and_the_error_names_the_encoding"
    ),
    Case(
        "json-lines",
        "a file of UTF-16",
        _UTF_16,
        test=_TEXT_FILES + "test_utf_16_file_fails_and_the_error_names_the_encoding",
    ),
]

CASES: list[Case] = [*_REST, *_CASTS, *_KAFKA, *_SERVERS, *_FILES]
