"""Unreadable files: one run names all of them; they fail their dataset, are skipped, or go to the error branch."""

from __future__ import annotations

import errno
import gzip
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from distcommit.app.auditing.audit import audit_store
from distcommit.core.error_handling.error_text_classification import is_outage
from distcommit.core.errors import SourceError, TransientError, error_text
from distcommit.engine.driver.run import RunResult
from distcommit.sources.files import extractor, format_readers
from distcommit.sources.files.source import FilesSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import OUTPUT, Machine, go
from tests.unit.sources.files.files_folder import Folder
from tests.unit.sources.files.test_csv_rows import csv_flow, tables
from tests.unit.sources.files.test_files_source import folder

__all__ = ["folder"]

GOOD = "id,name\n1,a\n2,b\n"
TRUNCATED = gzip.compress(b"id,name\n" + b"7,x\n" * 50_000, mtime=0)[:-9]
LATE_ERROR = b"id,name\n" + b"8,y\n" * 700 + b"9,\xff\n"
NAMES = ("0.csv", "1.csv.gz", "2.csv", "3.csv", "4.csv")


def messy(folder: Folder, **settings: Any) -> FilesSource:
    """Fill dataset `a` with two good and three unreadable files, and dataset `b` with a good one."""
    contents: tuple[bytes | str, ...] = (GOOD, TRUNCATED, LATE_ERROR, "id,id\n1,2\n", GOOD)
    for number, (name, data) in enumerate(zip(NAMES, contents, strict=True)):
        folder.put(f"a/{name}", data, number)
    folder.put("b/0.csv", GOOD)
    return source_of(folder, **settings)


def source_of(folder: Folder, **settings: Any) -> FilesSource:
    return folder.source(format="csv", paths=[f"{folder.folder}/in/{{dataset}}/*"], **settings)


def run(world: World, machine: Machine, source: FilesSource) -> RunResult:
    return go(world, machine, source)  # type: ignore[arg-type]  # a source as any other


def ids(machine: Machine, part: str = "") -> list[tuple[str, int]]:
    return [(Path(row["_file"]).name, row["_row"]) for row in tables(machine, f"{OUTPUT}/{part}")]


def is_exact(world: World, machine: Machine) -> bool:
    return audit_store(world.store(machine), FilesSource.provenance, deep=True).exact


@pytest.mark.parametrize("bytes_per_work_unit", [1, 1 << 30])
def test_one_run_names_all_unreadable_files_of_a_dataset_and_publishes_the_others(
    folder: Folder, bytes_per_work_unit: int
) -> None:
    machine, world = Machine(), World(flow=csv_flow("fail"))
    result = run(world, machine, messy(folder, bytes_per_work_unit=bytes_per_work_unit))
    assert not result.succeeded
    assert ids(machine, "a/") == []
    assert ids(machine, "b/") == [("0.csv", 0), ("0.csv", 1)]
    (reason,) = result.reasons.entries
    assert (reason.subject, "SOURCE_FILES_UNREADABLE" in reason.text) == ("a", True)
    notes = " ".join(note.text for note in result.notes if (note.subject, note.kind) == ("a", "input problem"))
    inbox = f"{folder.folder}/in/a"
    assert f"{inbox}/1.csv.gz, EOFError: Compressed file ended before" in notes
    assert f"{inbox}/2.csv, line 702: not UTF-8" in notes
    assert f"{inbox}/3.csv, line 1: two columns of one name: 'id'" in notes
    assert notes.count(inbox) == 3
    if bytes_per_work_unit > 1:
        assert reason.text.count(inbox) == 3
        assert notes.startswith("3 unreadable files of a failed work unit: ")


@pytest.mark.parametrize("bytes_per_work_unit", [1, 1 << 30])
@pytest.mark.parametrize("held_bytes", [0, 1 << 30])
def test_skipped_files_are_reported_not_published_in_part_and_not_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, bytes_per_work_unit: int, held_bytes: int
) -> None:
    monkeypatch.setattr(extractor, "_HELD_BYTES", held_bytes)
    machine, world = Machine(), World(flow=csv_flow("fail"))
    source = messy(folder, bytes_per_work_unit=bytes_per_work_unit, on_unreadable_file="skip")
    result = run(world, machine, source)
    assert result.succeeded
    assert sorted(ids(machine, "a/")) == [("0.csv", 0), ("0.csv", 1), ("4.csv", 0), ("4.csv", 1)]
    notes = " ".join(note.text for note in result.notes if note.kind == "input problem")
    assert [name for name in NAMES if name in notes] == ["1.csv.gz", "2.csv", "3.csv"]
    skipped = "3 unreadable files skipped, not published: " if bytes_per_work_unit > 1 else "1 unreadable file skipped"
    assert notes.count(skipped) == (1 if bytes_per_work_unit > 1 else 3)
    assert is_exact(world, machine)
    again = run(world, machine, source)
    assert (again.succeeded, again.totals.records_read, list(again.notes)) == (True, 0, [])


@pytest.mark.parametrize("mode", ["skip", "divert"])
def test_repaired_file_that_was_skipped_is_read_as_a_new_one(folder: Folder, mode: str) -> None:
    machine, world = Machine(), World(flow=csv_flow("fail"))
    source = messy(folder, bytes_per_work_unit=1, on_unreadable_file=mode, on_late_file="fail")
    assert run(world, machine, source).succeeded
    folder.put("a/2.csv", GOOD, 1.5)
    folder.put("a/3.csv", GOOD, 100)
    assert run(world, machine, source).succeeded
    assert sorted(name for name, row in ids(machine, "a/") if not row) == ["0.csv", "2.csv", "3.csv", "4.csv"]
    assert is_exact(world, machine)
    folder.put("a/2.csv", GOOD, 200)
    assert "changed after they were read" in run(world, machine, source).reasons.entries[0].text


@pytest.mark.parametrize("on_rejected", ["fail", "divert"])
def test_diverted_file_is_one_record_of_the_error_branch(folder: Folder, on_rejected: str) -> None:
    machine, world = Machine(), World(flow=csv_flow(on_rejected))
    source = messy(folder, on_unreadable_file="divert")
    result = run(world, machine, source)
    assert result.succeeded
    files = "3 unreadable files" if on_rejected == "fail" else "2 unreadable files"
    assert result.notes.entries[0].text.startswith(f"{files} put into the error branch, not published: ")
    rejected = tables(machine, "/_rejected/")
    reasons = {Path(row["_file"]).name: row["error_reason"] for row in rejected}
    assert f"{folder.folder}/in/a/1.csv.gz, EOFError" in reasons["1.csv.gz"]
    assert "3.csv, line 1: two columns of one name" in reasons["3.csv"]
    assert "2.csv, line 702: not UTF-8" in reasons["2.csv"]
    assert len(rejected) == 3
    published = [name for name, _ in ids(machine, "a/")]
    assert published.count("2.csv") == (700 if on_rejected == "divert" else 0)
    assert is_exact(world, machine)
    assert run(world, machine, source).totals.records_read == 0
    assert world.reprocess(machine, source, "a").succeeded  # type: ignore[arg-type]
    assert is_exact(world, machine)


def test_half_read_file_that_becomes_unreadable_fails(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(extractor, "_HELD_BYTES", 0)
    options: dict[str, Any] = {
        "paths": [f"{folder.folder}/in/{{dataset}}/*.gz"],
        "on_unreadable_file": "skip",
    }
    path = folder.put("d/a.gz", gzip.compress(b"1\n" * 500, mtime=0))
    assert len(folder.run(batches=1, **options)) == 32
    data = path.read_bytes()
    (plan,) = folder.plan(**options).values()
    extraction = folder.source(**options).open().extract(plan.work_units[0])  # type: ignore[union-attr]
    monkeypatch.setattr(extraction, "_require_unchanged", lambda file: None)
    folder.put("d/a.gz", data[:-6])
    with pytest.raises(SourceError, match=r"d/a\.gz, EOFError"):
        list(extraction)


@pytest.mark.parametrize("mode", ["fail", "skip", "divert"])
def test_storage_error_fails_the_work_unit_and_skips_nothing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    source = messy(folder, on_unreadable_file=mode)
    (plan,) = (plan for plan in folder.plan(**source.model_dump()).values() if plan.dataset_urn == "a")
    extraction = source.open().extract(plan.work_units[0])  # type: ignore[union-attr]

    def broken(stream: object, size: int = -1) -> bytes:
        raise OSError("the disk is gone")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileOpener.read", broken)
    with pytest.raises(SourceError, match="the disk is gone") as raised:
        list(extraction)
    assert raised.value.id == "SOURCE_FILE_UNREADABLE"


def test_storage_error_ends_the_search_for_further_unreadable_files_with_a_warning(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = messy(folder)
    (plan,) = (plan for plan in folder.plan(**source.model_dump()).values() if plan.dataset_urn == "a")
    extraction = source.open().extract(plan.work_units[0])  # type: ignore[union-attr]
    opened = LocalFileSystem._open

    def fails(system: object, path: str, *args: object, **named: object) -> object:
        if path.endswith("2.csv"):
            raise OSError(errno.EACCES, "not now")
        return opened(system, path, *args, **named)

    monkeypatch.setattr(LocalFileSystem, "_open", fails)
    with pytest.raises(SourceError, match=r"1\.csv\.gz"):
        list(extraction)
    assert "the other files of the work unit were not checked: " in caplog.text
    assert "2.csv" in caplog.text


@pytest.mark.parametrize("called", ["open", "read"])
@pytest.mark.parametrize(("code", "is_counted"), [(errno.EAGAIN, False), (errno.EBUSY, False), (errno.EACCES, True)])
def test_busy_storage_is_an_outage_and_a_missing_permission_is_not(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, called: str, code: int, is_counted: bool
) -> None:
    source = messy(folder)
    (plan,) = (plan for plan in folder.plan(**source.model_dump()).values() if plan.dataset_urn == "a")
    extraction = source.open().extract(plan.work_units[0])  # type: ignore[union-attr]

    def fails(*_: object, **__: object) -> bytes:
        raise OSError(code, "not now")

    opener = "fsspec.implementations.local.LocalFileSystem._open"
    monkeypatch.setattr(opener if called == "open" else "fsspec.implementations.local.LocalFileOpener.read", fails)
    with pytest.raises(SourceError if is_counted else TransientError, match="a file can't be read") as raised:
        list(extraction)
    assert is_outage(error_text(raised.value)) is not is_counted


def test_names_of_unreadable_files_are_bounded(folder: Folder) -> None:
    for number in range(250):
        folder.put(f"a/{number:03d}.csv", "id,id\n", number)
    machine, world = Machine(), World(flow=csv_flow("fail"))
    result = run(world, machine, source_of(folder))
    notes = [note.text for note in result.notes]
    assert sum(text.count("two columns") for text in notes) == 100
    assert notes[-1] == "150 more files of the work unit"
    assert len(result.reasons.entries[0].text) <= 4000
