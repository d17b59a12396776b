"""Files that arrive over several runs: each row is read once; late, changed, missing or damaged files are reported."""

from __future__ import annotations

import gzip
import io
import os
import time
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import DistcommitError, SourceError
from distcommit.core.interfaces.source import DatasetProblem, SourceState
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.files import format_readers
from distcommit.sources.files.csv_dialect import Dialect, QuoteCheck
from distcommit.sources.files.plan_dataset import FILES, WATERMARKS
from distcommit.sources.files.progress import Entry, Progress
from distcommit.sources.files.source import FilesSource
from tests.models.rejecting_flows import TurningAway
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, go, states
from tests.unit.sources.files.files_folder import NOW_S, Folder, counted

ENTRIES = (Entry(2, 1, 0), Entry(1, 1, 0))
UNSORTED = WATERMARKS.to_position(Progress(recent=ENTRIES))[-1]  # type: ignore[index]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_new_files_are_read_by_time_and_each_row_has_its_own_number(folder: Folder) -> None:
    folder.put("d/b.jsonl", "1\n2\n", at=0)
    folder.put("d/deep/er/a.jsonl", "3\n\n4", at=1)
    folder.put("e/c.jsonl", "5\n")
    rows = folder.run(bytes_per_work_unit=1)
    assert [row["value"] for row in rows] == [b"1", b"2", b"3", b"4", b"5"]
    assert [(row["_partition"], row["_offset"], row["_row"]) for row in rows] == [
        ("0", 0, 0),
        ("0", 1, 1),
        ("1", 0, 0),
        ("1", 1, 1),
        ("0", 0, 0),
    ]
    assert rows[2]["_file"] == f"{folder.folder}/in/d/deep/er/a.jsonl"
    assert folder.run() == []
    folder.put("d/a.jsonl", "6\n", at=2)
    assert [(row["value"], row["_partition"], row["_offset"]) for row in folder.run()] == [(b"6", "0", 2)]
    assert folder.watermarks["d"].positions["1"] == 2


def test_dataset_is_named_by_the_path_or_is_one_for_all_files(folder: Folder) -> None:
    for name in ("orders-1.csv", "orders-2.csv", "clicks-1.csv", ".hidden-1.csv", "_tmp-1.csv", "orders-1.tmp"):
        folder.put(name, "a\n1\n")
    named = {"format": "csv", "paths": [f"{folder.folder}/in/{{dataset}}-[0-9].csv"]}
    assert set(folder.plan(**named)) == {"orders", "clicks"}
    assert [plan.dataset_urn for plan in folder.source(**named).plan(lambda urn: urn == "orders", SourceState())] == [
        "orders"
    ]
    assert set(folder.plan(format="csv", paths=[f"{folder.folder}/in/*.csv"], dataset="all")) == {"all"}


def test_file_that_matches_two_patterns_is_reported(folder: Folder) -> None:
    folder.put("d/a.jsonl", "1\n")
    folder.put("e/b.jsonl.gz", gzip.compress(b"1\n"))
    paths = [f"{folder.folder}/in/{{dataset}}/*", f"{folder.folder}/in/{{dataset}}/a.jsonl"]
    assert f"would be read twice: {folder.folder}/in/d/a.jsonl" in folder.problem("d", paths=paths)
    assert isinstance(folder.plan(paths=paths)["e"], DatasetPlan)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("in/*.jsonl", "must be an absolute path or a URL"),
        ("smb://me:secret@host/in/*", "must not contain a password"),
        ("/in/", "must end with a file name, not with a folder"),
        ("/in/**", "must end with a file name, not with a folder"),
        ("/in/../*", "must not have the parts `.` and `..`, nor `**` within a name"),
        ("/in/a**/b", "must not have the parts `.` and `..`, nor `**` within a name"),
        ("/in/**/a/**/b", "must have each of `**` and {dataset} once at most"),
        ("/in/{name}/*", "must not have a wildcard in its host, nor braces other than {dataset}"),
        ("smb://h*/in/*", "must not have a wildcard in its host, nor braces other than {dataset}"),
        ("/in/[z-a]", "'[z-a]' is not a pattern: bad character range z-a"),
    ],
)
def test_problem_of_a_path_pattern_is_named(folder: Folder, pattern: str, problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        folder.source(paths=[pattern], dataset="d")
    assert problem in str(refused.value)


def test_folders_of_datasets_owned_by_other_tasks_are_not_listed(folder: Folder) -> None:
    folder.put("mine/a.jsonl", "1\n")
    folder.put("theirs/a.jsonl", "1\n").parent.chmod(0)
    assert [plan.dataset_urn for plan in folder.source().plan(lambda urn: urn == "mine", SourceState())] == ["mine"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"paths": []},
        {"paths": ["in/*.jsonl"], "dataset": "d"},
        {"paths": ["/in/*.jsonl"]},
        {"paths": ["/in/{dataset}/*"], "dataset": "d"},
        {"paths": ["/in/{dataset}/{dataset}"]},
        {"paths": ["/in/{name}/*"], "dataset": "d"},
        {"paths": ["/in/**"], "dataset": "d"},
        {"paths": ["/in/**/a/**/b"], "dataset": "d"},
        {"paths": ["/in/a**/b"], "dataset": "d"},
        {"paths": ["/in/[z-a]"], "dataset": "d"},
        {"paths": ["/in/../*"], "dataset": "d"},
        {"paths": ["/in/"], "dataset": "d"},
        {"paths": ["smb://me:secret@host/in/*"], "dataset": "d"},
        {"format": "xml"},
        {"delimiter": ";;"},
        {"tracked_files": 0},
    ],
)
def test_invalid_files_settings_are_rejected(folder: Folder, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        folder.source(**wrong)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("in/*", "must be an absolute path or a URL"),
        ("smb://me:secret@host/in/*", "must not contain a password; set FSSPEC_SMB_PASSWORD instead"),
        ("/in/", "must end with a file name, not with a folder"),
        ("/in/**", "must end with a file name, not with a folder"),
        ("/in/../*", "must not have the parts `.` and `..`, nor `**` within a name"),
        ("/in/a**/b", "must not have the parts `.` and `..`, nor `**` within a name"),
        ("/in/**/a/**/b", "must have each of `**` and {dataset} once at most"),
        ("/in/{name}/*", "must not have a wildcard in its host, nor braces other than {dataset}"),
        ("/in/[z-a]", "'[z-a]' is not a pattern: bad character range z-a"),
    ],
)
def test_invalid_pattern_of_paths_is_rejected_with_its_rule(folder: Folder, path: str, text: str) -> None:
    with pytest.raises(ValidationError) as refused:
        folder.source(paths=[path], dataset="d")
    assert text in str(refused.value)


def test_missing_folder_stops_the_source(folder: Folder) -> None:
    with pytest.raises(SourceError, match="cannot be listed") as refused:
        folder.plan(paths=[f"{folder.folder}/typo/{{dataset}}/*.jsonl"])
    assert f"{folder.folder}/typo" in str(refused.value)


def test_url_without_a_file_system_raises(folder: Folder) -> None:
    with pytest.raises(DistcommitError, match="no file system"):
        folder.plan(paths=["nowhere://x/{dataset}/*.jsonl"])


def test_file_that_may_still_be_written_waits_for_the_next_run(folder: Folder) -> None:
    folder.put("d/old.jsonl", "1\n")
    folder.put("d/young.jsonl", "2\n", at=time.time() - NOW_S - 2)
    folder.put("d/future.jsonl", "3\n", at=time.time() - NOW_S + 1000)
    assert folder.values() == ["1"]
    assert folder.values(min_file_age_s=1) == ["2"]


def test_late_files_are_read_or_reported_as_configured(folder: Folder) -> None:
    folder.put("d/b.jsonl", "1\n", at=10)
    assert folder.values() == ["1"]
    folder.put("d/a.jsonl", "2\n", at=5)
    folder.put("d/c.jsonl", "3\n", at=20)
    problem = folder.problem("d", on_late_file="fail")
    assert "a.jsonl" in problem
    assert "c.jsonl" not in problem
    assert sorted(folder.values()) == ["2", "3"]
    assert folder.values() == []


def test_file_older_than_all_remembered_ones_is_not_noticed(folder: Folder) -> None:
    for number in range(4):
        folder.put(f"d/{number}.jsonl", f"{number}\n", at=number)
    assert len(folder.values(tracked_files=2)) == 4
    folder.put("d/below.jsonl", "below\n", at=0.5)
    folder.put("d/among.jsonl", "among\n", at=2.5)
    assert folder.values(tracked_files=2) == ["among"]


def test_file_changed_after_it_was_read_is_reported_or_read_again_as_configured(folder: Folder) -> None:
    for at, how in ((50, "later"), (-50, "earlier"), (0, "at the same time")):
        folder.watermarks.clear()
        folder.put("d/a.jsonl", "1\n")
        folder.put("e/a.jsonl", "1\n")
        assert folder.values() == ["1", "1"]
        folder.put("d/a.jsonl", "1\n2\n", at)
        assert "changed after they were read: d/a.jsonl" in folder.problem("d"), how
        assert "e" not in folder.plan()
        assert folder.values(on_changed_file="read_again") == ["1", "2"], how
        assert folder.values() == [], how


def test_files_that_could_not_be_read_are_planned_separately(folder: Folder) -> None:
    folder.put("d/0.jsonl", "0\n", at=0)
    assert folder.values() == ["0"]
    folder.put("d/1.jsonl", "1\n", at=2)
    folder.put("d/2.jsonl", "2\n", at=3)
    failed = folder.plan(bytes_per_work_unit=1)["d"]
    assert isinstance(failed, DatasetPlan)
    folder.again = {"d": failed.work_units[-1].expected_high}
    folder.put("d/late.jsonl", "late\n", at=1)
    folder.put("d/new.jsonl", "new\n", at=9)
    assert folder.values(tracked_files=1) == ["late", "1", "2"], "older files would otherwise be forgotten unread"
    folder.again = {}
    assert folder.values() == ["new"]


def test_repaired_file_that_could_not_be_read_is_read_separately(folder: Folder) -> None:
    folder.put("d/1.jsonl", "1\n", at=2)
    failed = folder.plan()["d"]
    assert isinstance(failed, DatasetPlan)
    folder.again = {"d": failed.work_units[-1].expected_high}
    folder.put("d/1.jsonl", "mended\n", at=8)
    folder.put("d/new.jsonl", "new\n", at=9)
    assert folder.values() == ["mended"]
    folder.again = {}
    assert folder.values() == ["new"]


def test_missing_files_that_could_not_be_read_are_not_waited_for(folder: Folder) -> None:
    gone = folder.put("d/1.jsonl", "1\n", at=2)
    failed = folder.plan()["d"]
    assert isinstance(failed, DatasetPlan)
    folder.again = {"d": failed.work_units[-1].expected_high}
    gone.unlink()
    folder.put("d/new.jsonl", "new\n", at=7)
    assert folder.values() == ["new"]


@pytest.mark.parametrize("again", [Watermark({}), Watermark({FILES: 7}), Watermark({"0": 4})])
def test_read_failure_end_that_is_not_a_files_position_is_ignored(folder: Folder, again: Watermark) -> None:
    folder.again = {"d": again}
    folder.put("d/1.jsonl", "1\n")
    assert folder.values() == ["1"]


def test_files_that_were_read_may_be_deleted(folder: Folder) -> None:
    path = folder.put("d/a.jsonl", "1\n")
    folder.run()
    path.unlink()
    folder.put("d/b.jsonl", "2\n", at=1)
    assert folder.values() == ["2"]


def test_run_that_stops_within_a_file_resumes_there(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 6)
    path = folder.put("d/a.jsonl", "".join(f"{number}\n" for number in range(10)))
    folder.put("d/b.jsonl", "b\n", at=1)
    first = folder.run(batches=2, tracked_files=1)
    position = WATERMARKS.from_position(folder.watermarks["d"].positions[FILES])
    assert (position.files, position.rows, position.path) == (0, len(first), "d/a.jsonl")
    path.rename(path.with_suffix(".away"))
    assert f"of which {len(first)} rows are published: d/a.jsonl" in folder.problem("d")
    path.with_suffix(".away").rename(path)
    remainder = folder.run(tracked_files=1)
    assert [row["value"].decode() for row in first + remainder] == [*map(str, range(10)), "b"]
    assert counted(first + remainder) == {"0": [*range(11)]}
    assert [row["_row"] for row in first + remainder] == [*range(10), 0]


def two_hosts(tmp_path: Path) -> Folder:
    """Return a dataset of two folders; a file of the second one has been read."""
    paths = [f"{tmp_path}/in/host1/*.jsonl", f"{tmp_path}/in/host2/*.jsonl"]
    folder = Folder(tmp_path, paths=paths, dataset="d")
    folder.put("host2/app.jsonl", "2\n" * 6)
    folder.put("host1/none.jsonl", "")
    assert folder.values() == ["2"] * 6
    return folder


def test_begun_file_is_distinguished_from_one_of_the_same_name_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts write `app.jsonl`; if the wrong file were resumed, the rest of the begun one would be lost silently."""
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 8)
    folder = two_hosts(tmp_path)
    path = folder.put("host1/app.jsonl", "".join(f"{n}\n" for n in range(10, 18)), at=1)
    first = folder.values(batches=1)
    assert 0 < len(first) < 8
    path.rename(path.with_suffix(".away"))
    assert "a partly read file is gone" in folder.problem("d")
    path.with_suffix(".away").rename(path)
    assert [*first, *folder.values()] == [str(n) for n in range(10, 18)]
    assert folder.values() == []


def test_missing_begun_file_is_reported_even_if_it_was_the_only_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 6)
    whole = folder.put("whole/a.jsonl", "1\n")
    assert folder.values() == ["1"]
    whole.unlink()
    begun = folder.put("d/a.jsonl", "1\n2\n3\n4\n5\n6\n")
    first = folder.values(batches=1)
    assert 0 < len(first) < 6
    begun.rename(folder.folder / "away")
    begun.parent.rmdir()
    assert list(folder.plan()) == ["d"]
    assert f"a partly read file is gone, of which {len(first)} rows are published: d/a.jsonl" in folder.problem("d")
    begun.parent.mkdir()
    (folder.folder / "away").rename(begun)
    assert [*first, *folder.values()] == [*"123456"]


def test_half_read_file_that_shrinks_is_reported(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 6)
    folder.put("d/a.jsonl", "1\n2\n3\n4\n5\n6\n")
    folder.run(batches=1)
    folder.put("d/a.jsonl", "1\n")
    assert "changed after" in folder.problem("d")
    assert folder.values(on_changed_file="read_again") == ["1"]


def test_file_with_fewer_rows_than_were_read_from_it_is_reported(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 8)
    folder.put("d/a.jsonl", '"\n\n1\n2\n3\n4\n"\n5\n6\n')
    assert len(folder.run(batches=2)) > 2
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 1000)
    with pytest.raises(SourceError, match="fewer rows than were read from it"):
        folder.run(format="csv")


def extraction_of(folder: Folder, **settings: Any) -> Any:
    plan = folder.plan(**settings)["d"]
    assert isinstance(plan, DatasetPlan)
    return folder.source(**settings).open().extract(plan.work_units[0])


def test_file_deleted_or_changed_during_the_read_fails_its_work_unit(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 4)
    path = folder.put("d/a.jsonl", "1\n2\n3\n4\n")
    extraction = extraction_of(folder)
    path.unlink()
    with pytest.raises(SourceError, match="has gone since it was listed") as raised:
        list(extraction)
    assert str(path) in str(raised.value)
    folder.put("d/a.jsonl", "1\n2\n3\n4\n")
    extraction = extraction_of(folder)
    folder.put("d/a.jsonl", "1\n2\n3\n5\n", at=1)
    with pytest.raises(SourceError, match="was changed while it was read"):
        list(extraction)
    for stops in (False, True):
        folder.put("d/a.jsonl", "1\n2\n3\n4\n")
        extraction = extraction_of(folder)
        batches = iter(extraction)
        next(batches)
        folder.put("d/a.jsonl", "1\n2\n3\n4\n", at=1)
        with pytest.raises(SourceError, match="was changed while it was read"):
            _ = extraction.actual_high() if stops else list(batches)


def test_limits_take_whole_files_and_at_least_one(folder: Folder) -> None:
    for number in range(5):
        folder.put(f"d/{number}.jsonl", f"{number}" * 10 + "\n", at=number)
    read = [folder.values(bytes_per_dataset=25) for _ in range(4)]
    assert [len(values) for values in read] == [2, 2, 1, 0]
    folder.put("d/large.jsonl", "x" * 100 + "\n", at=9)
    assert len(folder.values(bytes_per_dataset=25)) == 1


def test_work_units_do_not_exceed_the_row_partitions(folder: Folder) -> None:
    for number in range(50):
        folder.put(f"d/{number}.jsonl", f"{number}\n", at=number)
    plan = folder.plan(bytes_per_work_unit=1)["d"]
    assert isinstance(plan, DatasetPlan)
    assert len(plan.work_units) == 16
    assert sorted(folder.values(bytes_per_work_unit=1), key=int) == [str(number) for number in range(50)]


def test_watermark_without_a_files_position_stops_its_dataset(folder: Folder) -> None:
    folder.put("d/a.jsonl", "1\n")
    folder.watermarks["d"] = Watermark({"0": 1})
    assert "not known which of its files are read" in folder.problem("d")
    folder.watermarks["d"] = Watermark({FILES: (1, 2), "0": 1})
    assert "not a position in files" in folder.problem("d")


def test_operator_may_set_the_time_from_which_files_are_new(folder: Folder) -> None:
    folder.put("d/a.jsonl", "1\n")
    folder.put("d/b.jsonl", "2\n", at=10)
    position = (0, 0, "", (NOW_S + 5) * 10**9, 0, "")
    assert not list(folder.source().position_problems({"d": {FILES: position, "0": 7}}))
    folder.watermarks["d"] = Watermark({FILES: position, "0": 7})
    assert [(row["value"], row["_offset"]) for row in folder.run()] == [(b"2", 7)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"0": 1},
        {FILES: 1},
        {FILES: (0, 0, "", 0, 0, "x")},
        {FILES: (0, 0, "", 0, 0, "AAAA")},
        {FILES: (0, 0, "", 0, 0, UNSORTED)},
        {FILES: (-1, 0, "", 0, 0, "")},
        {FILES: (0, 0, "", 0, 0, "", 5)},
        {FILES: (0, 1, "", 0, 0, "", -5)},
        {FILES: (0, 1, "", 0, 0, "", "a")},
        {FILES: (0, 1, "", 0, 0, "", 5, 5)},
        {FILES: WATERMARKS.to_position(Progress()), "0": -1},
        {FILES: WATERMARKS.to_position(Progress()), "0": "a"},
    ],
)
def test_invalid_files_position_is_reported(folder: Folder, wrong: Any) -> None:
    assert len(list(folder.source().position_problems({"d": wrong}))) == 1


def test_pins_change_with_the_pattern_but_not_with_the_folder(folder: Folder) -> None:
    values = {name: pin.value for name, pin in folder.source().fixed_settings().items()}
    assert values == {"paths": "{dataset}/**/*.jsonl", "dataset": "", "watermark": "files 1"}
    moved = folder.source(paths=["s3://bucket/elsewhere/{dataset}/**/*.jsonl"])
    assert moved.fixed_settings() == folder.source().fixed_settings()
    other = folder.source(paths=[f"{folder.folder}/in/{{dataset}}/*.jsonl"])
    assert other.fixed_settings() != folder.source().fixed_settings()


@pytest.mark.parametrize("names", [("host1", "host2"), ("", "below"), ("a/deep", "a/er")])
def test_pins_change_if_patterns_are_reordered(tmp_path: Path, names: tuple[str, str]) -> None:
    """Read files are remembered by their pattern's number, so that reordered patterns would read all of them again."""

    def pins(*folders: str, root: str = f"{tmp_path}/in") -> dict[str, FixedSetting]:
        paths = [f"{root}/{folder}/*.jsonl" for folder in folders]
        return dict(Folder(tmp_path, paths=paths, dataset="d").source().fixed_settings())

    assert pins(*names) != pins(*names[::-1])
    assert pins(*names) == pins(*names, root="s3://bucket/elsewhere"), "all folders may move together"
    one, another = f"{tmp_path}/in/host1/*.jsonl", f"{tmp_path}/in/host2/*.csv"
    alone = Folder(tmp_path, paths=[one, another], dataset="d").source().fixed_settings()
    assert set(alone) == {"paths", "dataset", "watermark"}, "different patterns need no pinned order"


def test_files_of_another_file_system_are_read(folder: Folder) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/box/in/d/a.csv.gz", gzip.compress(b"n\n1\n2\n"))
    there: dict[str, Any] = {"format": "csv", "paths": ["memory://box/in/{dataset}/*.csv.gz"], "min_file_age_s": 0}
    assert [(row["n"], row["_file"]) for row in folder.run(**there)] == [
        (text, "memory://box/in/d/a.csv.gz") for text in "12"
    ]
    assert folder.run(**there) == []
    memory.rm("/box", recursive=True)


ROWS = pa.table({"n": [1, 2, 3], "t": ["a", "b", None]})


def parquet_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=2)
    return bytes(sink.getvalue())


def test_columns_of_parquet_and_csv_are_read(folder: Folder) -> None:
    folder.put("d/a.parquet", parquet_of(ROWS))
    folder.put("d/b.csv", 'n,t\n1,"a\nb"\n2,\n')
    parquet: dict[str, Any] = {"format": "parquet", "paths": [f"{folder.folder}/in/{{dataset}}/*.parquet"]}
    assert [(row["n"], row["t"], row["_row"]) for row in folder.run(**parquet)] == [
        (1, "a", 0),
        (2, "b", 1),
        (3, None, 2),
    ]
    folder.watermarks.clear()
    csv: dict[str, Any] = {"format": "csv", "paths": [f"{folder.folder}/in/{{dataset}}/*.csv"]}
    assert [(row["n"], row["t"]) for row in folder.run(**csv)] == [("1", "a\nb"), ("2", "")]


def test_line_breaks_in_csv_columns_are_kept_at_any_block_size(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("d/a.csv", "n,t\n" + "".join(f'{number},"a\n\nb"\n' for number in range(50)))
    for size in range(30, 40):
        monkeypatch.setattr(format_readers, "_BLOCK_BYTES", size)
        folder.watermarks.clear()
        rows = folder.run(format="csv", paths=[f"{folder.folder}/in/{{dataset}}/*.csv"])
        assert [(row["n"], row["t"]) for row in rows] == [(str(number), "a\n\nb") for number in range(50)]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.parquet", parquet_of(ROWS)[:-9], "Parquet"),
        ("a.parquet", b"", "Parquet"),
        ("a.parquet", b"PAR1" + b"\xff" * 30 + parquet_of(ROWS)[34:], "row group 0"),
        ("a.csv", 'n,"t\n1,2\n', "first row has a quote"),
        ("a.csv", "n,n\n1,2\n", "columns of one name"),
        ("a.csv", "n,_row\n1,2\n", "columns of one name"),
        ("a.csv", b"n,\xff\n1,2\n", "utf-8"),
        ("a.csv.gz", gzip.compress(b"n\n1\n", mtime=0)[:-5], "EOFError"),
        ("a.csv.gz", b"n\n1\n", "BadGzipFile"),
        ("a.jsonl.gz", gzip.compress(b"1\n2\n", mtime=0)[:-5], "EOFError"),
        ("a.avro", b"not avro", "avro"),
    ],
)
def test_unreadable_file_is_named_in_the_error(folder: Folder, name: str, data: bytes | str, message: str) -> None:
    folder.put(f"d/{name}", data)
    kind = {"format": name.split(".")[1], "paths": [f"{folder.folder}/in/{{dataset}}/{name}"]}
    with pytest.raises(SourceError) as raised:
        list(extraction_of(folder, **kind))
    assert message.lower() in str(raised.value).lower()
    assert f"{folder.folder}/in/d/{name}" in str(raised.value)


def test_folder_that_can_not_be_listed_stops_only_its_dataset(folder: Folder) -> None:
    folder.put("d/deep/a.jsonl", "1\n")
    folder.put("d/a.jsonl", "1\n")
    folder.put("e/a.jsonl", "1\n")
    source = folder.source()
    real = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("/deep"):
            raise PermissionError(13, "no", path)
        return real(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.scandir", scandir)
        planned = {plan.dataset_urn: plan for plan in source.plan(lambda urn: True, SourceState())}
    assert isinstance(planned["d"], DatasetProblem)
    assert "/in/d/deep" in planned["d"].error
    assert isinstance(planned["e"], DatasetPlan)


def test_file_name_that_is_not_unicode_stops_only_its_dataset(folder: Folder) -> None:
    folder.put("d/a\udcff.jsonl", "1\n")
    folder.put("e/a.jsonl", "1\n")
    assert "not valid Unicode" in folder.problem("d")
    assert isinstance(folder.plan()["e"], DatasetPlan)


def test_files_deleted_while_their_folder_is_listed_do_not_prevent_reading(folder: Folder) -> None:
    folder.put("d/a.jsonl", "1\n")
    fs, asked = fsspec.filesystem("file"), list[str]()
    real = type(fs).ls

    def ls(self: Any, path: str, **options: Any) -> Any:
        asked.append(path)
        if len(asked) % 2:
            raise FileNotFoundError(path)
        return real(self, path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(fs), "ls", ls)
        assert set(folder.plan()) == {"d"}


class Remembering(LocalFileSystem):  # type: ignore[misc]
    """A file system that caches listings, as those of object stores do."""

    protocol = "remembering"
    known: ClassVar[dict[str, Any]] = {}

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        return self.known.setdefault(f"ls {path}", super().ls(path, detail, **options))

    def info(self, path: Any, **options: Any) -> Any:
        return self.known.setdefault(f"info {path}", super().info(path, **options))

    def invalidate_cache(self, path: str | None = None) -> None:
        self.known.clear()


def test_cached_listing_is_refreshed_before_each_plan_and_read(folder: Folder) -> None:
    fsspec.register_implementation("remembering", Remembering, clobber=True)
    there = {"paths": [f"remembering://{folder.folder}/in/{{dataset}}/*.jsonl"]}
    folder.put("d/a.jsonl", "1\n")
    assert set(folder.plan(**there)) == {"d"}
    folder.put("e/a.jsonl", "1\n")
    assert set(folder.plan(**there)) == {"d", "e"}
    extraction = extraction_of(folder, **there)
    batches = iter(extraction)
    next(batches)
    folder.put("d/a.jsonl", "2\n", at=1)
    with pytest.raises(SourceError, match="was changed while it was read"):
        next(batches)


def test_lines_of_any_length_are_read_whole(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["", "a", "", "b" * 50, "c\r", "", "d" * 7]
    for size in (1, 3, 8, 100):
        monkeypatch.setattr(format_readers, "_BLOCK_BYTES", size)
        for end in ("", "\n"):
            folder.watermarks.clear()
            folder.put("d/a.jsonl", "\n".join(lines) + end)
            assert folder.values() == [line for line in lines if line]
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 8)
    monkeypatch.setattr(format_readers, "_MOST_LINE_BYTES", 20)
    folder.watermarks.clear()
    with pytest.raises(SourceError, match=r"a line of more than 20 bytes.*after 1 record"):
        folder.run()


AVRO = {
    "type": "record",
    "name": "ns.R",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "t", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        {"name": "again", "type": ["null", "ns.K"]},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "bytes"}]}},
    ],
}


def test_columns_of_avro_are_read(folder: Folder) -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    record = {
        "n": 1,
        "t": None,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "price": Decimal("1.25"),
        "id": "0f0e0d0c-0000-4000-8000-000000000001",
        "kind": "B",
        "again": "A",
        "tags": {"a": 1},
        "inner": {"x": b"\x00"},
    }
    path = folder.put("d/a.avro", b"")
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(dict(AVRO)), [record] * 3, codec="deflate")
    os.utime(path, (NOW_S, NOW_S))
    rows = folder.run(format="avro", paths=[f"{folder.folder}/in/{{dataset}}/*.avro"])
    assert len(rows) == 3
    assert {name: rows[0][name] for name in record} == {**record, "tags": [("a", 1)]}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"type": "record", "name": "E", "fields": []}, "field n is a record without fields"),
        (["null", "ns.R"], r"field n is of a type that contains itself \(ns.R\)"),
    ],
)
def test_avro_type_without_a_column_type_raises(folder: Folder, kind: Any, message: str) -> None:
    path = folder.put("d/a.avro", b"")
    schema = {"type": "record", "name": "ns.R", "fields": [{"name": "n", "type": kind}]}
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), [])
    os.utime(path, (NOW_S, NOW_S))
    with pytest.raises(SourceError, match=message):
        list(extraction_of(folder, format="avro", paths=[f"{folder.folder}/in/{{dataset}}/*.avro"]))


def test_files_with_only_dropped_rows_are_logged_by_row_numbers_alone(folder: Folder) -> None:
    machine, world = Machine(), World(flow=TurningAway(dropped=frozenset({"no"})))
    for number, value in enumerate(["yes", "no", "yes", "no"]):
        folder.put(f"a/{number}.jsonl", f"{value}\n", number)
        assert go(world, machine, folder.source()).succeeded  # type: ignore[arg-type]  # a source as any other
    skipped = states(world, machine)["a"].skipped
    assert [(skipped_range.partition, skipped_range.low, skipped_range.high) for skipped_range in skipped] == [
        ("0", 1, 2),
        ("0", 3, 4),
    ]
    assert audit_store(world.store(machine), FilesSource.provenance, deep=True).exact


class Slow(io.BytesIO):
    """A file whose reads are slow, as on a remote file system."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():  # the read-ahead
            time.sleep(0.01)
        return super().read(size)


def test_reading_csv_column_names_consumes_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CSV reader reads ahead in a thread of its own."""
    monkeypatch.setattr(format_readers, "_BLOCK_BYTES", 64)
    data = b"n,t\n" + b"".join(b"%d,abc\n" % number for number in range(500))
    for _ in range(3):
        batches = format_readers.batches(Slow(data), "csv", False, Dialect())
        assert [int(n) for batch in batches for n in batch.column("n").to_pylist()] == list(range(500))


def test_abandoned_csv_reader_receives_no_more_data() -> None:
    stream = io.BytesIO(b"n,t\n1,2\n")
    with format_readers._Unclosed(stream, QuoteCheck(Dialect())) as abandoned:
        assert abandoned.read(4) == b"n,t\n"
    assert (abandoned.read(4), stream.tell()) == (b"", 4)


@pytest.mark.parametrize("how", ["rename", "link"])
def test_renamed_or_linked_file_is_read_again_with_a_warning(
    folder: Folder, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder.put("d/a.jsonl", "1\n2\n")
    folder.run()
    assert not caplog.records
    other = path.with_name("b.jsonl")
    path.rename(other) if how == "rename" else other.hardlink_to(path)
    folder.put("d/c.jsonl", "3\n", at=1)
    folder.run()
    (warning,) = caplog.records
    assert "b.jsonl" in warning.getMessage()
    assert "c.jsonl" not in warning.getMessage()
