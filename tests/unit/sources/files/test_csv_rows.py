"""Malformed CSV: rows that Arrow can parse are read, and each other row is returned as its raw bytes."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.auditing.audit import audit_store
from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.core.errors import SourceError
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sources.files import csv_rows, format_readers
from distcommit.sources.files.csv_dialect import Dialect
from distcommit.sources.files.csv_rows import problem_of, read_csv_rows
from distcommit.sources.files.source import FilesSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import OUTPUT, Machine, go
from tests.unit.sources.files.files_folder import Folder, counted
from tests.unit.sources.files.test_files_source import folder

__all__ = ["folder"]

SNAPSHOT_DELTAS = st.sampled_from(["a", "é", '"', '""', ",", ",", "\n", "\n", "\r\n", "\r", " ", "b,c\n", '"d\ne",f\n'])


def read(data: bytes, delimiter: str = ",") -> list[tuple[Any, ...]]:
    """Return rows in file order; a row that can't be parsed is returned as its bytes only."""
    rows_read = []
    for batch in format_readers.batches(io.BytesIO(data), "csv", False, Dialect(delimiter)):
        bad = batch.schema.names[-1] == "_unparsed" and batch.schema.types[-1] == pa.binary()
        for row in batch.to_pylist():
            unparsed, line = (row.pop("_unparsed"), row.pop("_unparsed_line")) if bad else (None, None)
            assert (unparsed is None) == (line is None)
            rows_read.append((unparsed,) if unparsed is not None else tuple(row.values()))
            assert unparsed is None or set(row.values()) == {None}
    return rows_read


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("1,2\n3\n4,5\n", [("1", "2"), (b"3",), ("4", "5")]),
        ("1,2\n3,4,5\n", [("1", "2"), (b"3,4,5",)]),
        ("1\n2,3\n4,5,6", [(b"1",), ("2", "3"), (b"4,5,6",)]),
        ('1,2\n3,"a,\nb",5\n6,7\n', [("1", "2"), (b'3,"a,\nb",5',), ("6", "7")]),
        (b"1,\xff\n\xe9,2\n3,4\n", [(b"1,\xff",), (b"\xe9,2",), ("3", "4")]),
        ('1,2\n3,"never\n4,5\n', [("1", "2"), (b'3,"never\n4,5\n',)]),
        ('1,2\n3,"never', [("1", "2"), (b'3,"never',)]),
        ('1,2\n3,"\r', [("1", "2"), (b'3,"\r',)]),
        ('1,2\n"never,4\n5,6', [("1", "2"), (b'"never,4\n5,6',)]),
        ('1,"closed\n"\n2,"too\n\n"', [("1", "closed\n"), ("2", "too\n\n")]),
        ('1,a"b\n2,"c"d"e\n3,"f""g"\n4\n', [("1", 'a"b'), (b'2,"c"d"e',), ("3", 'f"g'), (b"4",)]),
        ("\r\n1,2\r\n\r\n3\r\n4,5\r\n", [("1", "2"), (b"3",), ("4", "5")]),
        ("1,2\r3\r4,5", [("1", "2"), (b"3",), ("4", "5")]),
        (" \n1,2\n", [(b" ",), ("1", "2")]),
        ("", []),
        ("\n\n", []),
    ],
)
@pytest.mark.parametrize("block", [8, 4 << 20])
@pytest.mark.parametrize("header", ["n,t\n", "\ufeffn,t\r\n", '\n\n"n",t\r'])
def test_unparsable_csv_row_is_returned_as_its_bytes_in_its_position(
    monkeypatch: pytest.MonkeyPatch, header: str, rows: str | bytes, block: int, expected: list[tuple[Any, ...]]
) -> None:
    for module in (format_readers, csv_rows):
        monkeypatch.setattr(module, "_BLOCK_BYTES", block)
    data = header.encode() + (rows if isinstance(rows, bytes) else rows.encode())
    assert read(data) == expected


def test_comma_is_data_if_another_delimiter_is_set() -> None:
    assert read(b"n\tt\n1,5\t2\n3,4\n", "\t") == [("1,5", "2"), (b"3,4",)]
    assert read(b"n|t\n1]|2\n3^4\n", "|") == [("1]", "2"), (b"3^4",)]
    assert read(b"n]t\n1|]2\n3^4\n", "]") == [("1|", "2"), (b"3^4",)]


def test_csv_file_with_one_column_skips_empty_lines_and_reads_quoted_empty_text() -> None:
    assert read(b'n\n1\n\n""\n \n2') == [("1",), ("",), (" ",), ("2",)]
    assert read(b'n\n1\n\n2,3\n""\n2') == [("1",), (b"2,3",), ("",), ("2",)]


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"n,t", b"n,t\n", b"\xef\xbb\xbfn,t\r\n\r\n"]
)
def test_csv_file_without_rows_has_no_rows(data: bytes) -> None:
    assert read(data) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [(b'n,"t', "first row has a quote"), (b'"n,t\n1,2\n', "first row has a quote"), (b"n,\xff\n1,2\n", "utf-8")],
)
def test_unreadable_csv_header_raises(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(data)


def test_csv_row_larger_than_a_block_is_read_and_unterminated_row_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (format_readers, csv_rows):
        monkeypatch.setattr(module, "_BLOCK_BYTES", 32)
    large = "a\n" * 50
    assert read(f'n,t\n1,"{large}"\n2,b\n'.encode()) == [("1", large), ("2", "b")]
    monkeypatch.setattr(csv_rows, "_MOST_ROW_BYTES", 64)
    with pytest.raises(ValueError, match=r"a row of more than 64 bytes, or a quote that is not closed"):
        read(f'n,t\n1,"{large}'.encode())


@given(st.lists(SNAPSHOT_DELTAS, max_size=12), st.booleans())
def test_row_by_row_reader_returns_the_same_rows_as_the_block_reader(pieces: list[str], is_begun: bool) -> None:
    data = "n,t\n1,2\n" + "".join(pieces)
    rows_read = read(data.encode())
    slow = list(read_csv_rows(io.BytesIO(data.encode()), ["n", "t"], Dialect(), 0))
    rows = [row for batch in slow for row in batch.to_pylist()]
    expected = [(row["_unparsed"],) if row.get("_unparsed") is not None else (row["n"], row["t"]) for row in rows]
    assert rows_read == expected
    later = [
        row for batch in read_csv_rows(io.BytesIO(data.encode()), ["n", "t"], Dialect(), 1) for row in batch.to_pylist()
    ]
    assert len(later) == len(rows) - 1


@given(st.lists(SNAPSHOT_DELTAS, max_size=12))
def test_unparsed_row_has_a_reason(pieces: list[str]) -> None:
    for row in read(("n,t\n" + "".join(pieces)).encode()):
        if len(row) == 1:
            assert problem_of(row[0], 2, Dialect())


def test_rows_are_numbered_and_resumed_across_unparsable_rows(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (format_readers, csv_rows):
        monkeypatch.setattr(module, "_BLOCK_BYTES", 24)
    lines = [f"{number}" if number % 5 == 2 else f"{number},x" for number in range(40)]
    folder.put("d/a.csv", "n,t\n" + "\n".join(lines))
    folder.put("d/b.csv.gz", gzip.compress(b"n,t\n1,2\n3\n"), 5)
    csv: dict[str, Any] = {"format": "csv", "paths": [f"{folder.folder}/in/{{dataset}}/*"]}
    rows: list[dict[str, Any]] = []
    while rows_read := folder.run(batches=1, **csv) if len(rows) < 42 else []:
        rows += rows_read
    assert [row["_row"] for row in rows] == [*range(40), 0, 1]
    assert counted(rows) == {"0": [*range(42)]}
    lines_read = [row.get("_unparsed") or f"{row['n']},{row['t']}".encode() for row in rows[:40]]
    assert lines_read == [line.encode() for line in lines]


def test_existing_unparsed_column_is_kept_until_a_row_can_not_be_parsed(folder: Folder) -> None:
    csv: dict[str, Any] = {"format": "csv", "paths": [f"{folder.folder}/in/{{dataset}}/*.csv"]}
    folder.put("d/a.csv", "n,_unparsed\n1,2\n")
    rows = folder.run(**csv)
    assert [(row["n"], row["_unparsed"]) for row in rows] == [("1", "2")]
    folder.put("d/b.csv", "n,_unparsed\n1\n", 5)
    with pytest.raises(SourceError, match="columns of one name, or one with the name of an added"):
        folder.run(**csv)


def csv_flow(on_rejected: str) -> Callable[[Source, Sink], TaskFlow]:
    """Return the flow that a job file with this setting builds, with a sink for the test."""

    def with_sink(source: Source, sink: Sink) -> TaskFlow:
        if not isinstance(source, FilesSource):
            return TaskFlow.straight(source, sink)
        flow = FlowSettings.model_validate({"source": source.model_dump(), "on_rejected": on_rejected}).task_flow()
        return replace(flow, branches=[replace(branch, sink=sink) for branch in flow.branches])

    return with_sink


def tables(machine: Machine, part: str) -> list[dict[str, Any]]:
    """Return the rows of published files whose paths contain `part`."""
    files = [data for path, data in sorted(machine.paths(OUTPUT).items()) if path.endswith(".parquet") and part in path]
    return [row for data in files for row in pq.read_table(io.BytesIO(data)).to_pylist()]


def test_unparsable_rows_go_to_the_error_branch_and_the_others_are_published(folder: Folder) -> None:
    machine, world = Machine(), World(flow=csv_flow("divert"))
    source = folder.source(format="csv", paths=[f"{folder.folder}/in/{{dataset}}/*.csv"])
    path = folder.put("a/0.csv", b"n,t\n1,2\n3\n4,\xff\n5,6\n")
    assert go(world, machine, source).succeeded  # type: ignore[arg-type]  # a source as any other
    (published, rejected) = (tables(machine, part) for part in (f"{OUTPUT}/a/", "/_rejected/"))
    assert [(row["n"], row["t"], row["_row"]) for row in published] == [("1", "2", 0), ("5", "6", 3)]
    assert "_unparsed" not in published[0]
    assert [(row["_unparsed"], row["_row"], row["_offset"], row["n"]) for row in rejected] == [
        (b"3", 1, 1, None),
        (b"4,\xff", 2, 2, None),
    ]
    assert {row["error_construct"] for row in rejected} == {"source"}
    assert rejected[0]["error_reason"] == f"{path}, line 3: 1 columns; it must have 2"
    assert rejected[1]["error_reason"].startswith(f"{path}, line 4: not UTF-8")
    audited = audit_store(world.store(machine), FilesSource.provenance, deep=True)
    assert (audited.exact, audited.records, audited.rejected) == (True, 2, 2)
    assert world.reprocess(machine, source, "a").succeeded  # type: ignore[arg-type]
    again = [row for row in tables(machine, "/_rejected/") if row["error_reason"]]
    assert sorted(row["_unparsed"] for row in again) == [b"3", b"3", b"4,\xff", b"4,\xff"], (
        "the earlier error files are deleted later"
    )
    audited = audit_store(world.store(machine), FilesSource.provenance, deep=True)
    assert (audited.exact, audited.records, audited.rejected) == (True, 2, 2)


def test_first_unparsable_row_without_an_error_branch_fails_its_work_unit_and_is_named(folder: Folder) -> None:
    machine, world = Machine(), World(flow=csv_flow("fail"))
    source = folder.source(format="csv", paths=[f"{folder.folder}/in/{{dataset}}/*.csv"])
    path = folder.put("a/0.csv", "n,t\n1,2\n3\n")
    result = go(world, machine, source)  # type: ignore[arg-type]
    assert not result.succeeded
    assert f"{path}, line 3: 1 columns; it must have 2" in str(result.reasons.entries)
    assert "SOURCE_FILES_UNREADABLE" in str(result.reasons.entries)
    assert tables(machine, "") == []
