"""Rejected records and skipped files as the commands show them, from the run to their reprocessing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
import yaml
from typer.testing import CliRunner

from distcommit.app.inspection import rejected_records
from distcommit.app.jobs.job import Job
from distcommit.cli.main import app
from distcommit.engine.system_clock import SystemClock


def typed(command: str, exit_code: int = 0) -> str:
    """Run a command in this process; return its output without line breaks."""
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, shlex.split(command)[1:])
    output = " ".join((done.stdout + done.stderr).split())
    assert done.exit_code == exit_code, output
    return output


def write_job(tmp_path: Path, **sections: Any) -> Path:
    path = tmp_path / "job.yaml"
    job = {
        "job": "rejecting",
        "on_rejected": "divert",
        "paths": {name: str(tmp_path / name) for name in ("store", "staging", "output")},
        "commit": {"buckets": 2, "durability": "none"},
        "spark": {"master": "local[2]"},
        **sections,
    }
    path.write_text(yaml.safe_dump(job))
    return path


def test_dataset_that_rejects_most_records_is_a_problem_until_they_are_reprocessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in" / "clicks").mkdir(parents=True)
    (tmp_path / "in" / "clicks" / "1.csv").write_text("n\n1\n" + "x\n" * 11 + "two,columns\n")
    files = {
        "type": "files",
        "paths": [f"{tmp_path}/in/{{dataset}}/*"],
        "format": "csv",
        "min_file_age_s": 0,
    }
    path = write_job(tmp_path, source=files, converters=[{"type": "cast", "columns": {"n": "int64"}}])
    again = f"process them again: distcommit dataset reprocess {path} --all"
    output = typed(f"distcommit run {path}")
    assert "committed: all new records; 12 of 13 records rejected" in output
    assert "(of 13 read)" in output
    assert "most frequent reason (11 of 12): column 'n' as int64: " in output
    assert "the source could not parse 1 row: correct the row in a new file" in output
    assert again in output
    with monkeypatch.context() as patched:
        patched.setattr(rejected_records, "_MOST_BYTES", 100)  # the error file is larger
        rejected = rejected_records.newest_rejected(Job.from_file(path).open_store(create=False), SystemClock())
        assert rejected is not None
        assert (rejected.records, rejected.reason) == (12, "")
    status = typed(f"distcommit status {path}")
    assert "RECORDS_MOSTLY_REJECTED (warning): Most records of a dataset were rejected" in status
    assert "clicks: 12 of 13 records of its newest commit were rejected" in status
    assert f"distcommit runs {path} 2" in status
    output = typed(f"distcommit run {path}")
    assert "nothing new" in output
    assert "datasets none had data to read seconds" in output
    assert "clicks: 12 of 13 records" in typed(f"distcommit status {path}"), "an empty run solves no problem"

    path = write_job(tmp_path, source=files)
    output = typed(f"distcommit dataset reprocess {path} --all")
    assert "records rejected again are in new error files the source could not parse 1 row: correct" in output
    assert again not in output
    status = typed(f"distcommit status {path}")
    assert "no problems" in status
    assert "the source could not parse 1 row: correct the row in a new file" in status
    assert again not in status


def test_commands_show_rejected_records_and_skipped_files_until_they_are_reprocessed(tmp_path: Path) -> None:
    for name, text in (
        ("clicks/1.jsonl", '{"n": 1}\nnope\n'),
        ("orders/1.jsonl", '{"n": "x"}\n'),
        ("orders/2.gz", "?"),
        ("orders/3.gz", "?"),
        ("views/1.gz", "?"),
    ):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    files = {
        "type": "files",
        "paths": [f"{tmp_path}/in/{{dataset}}/*"],
        "format": "jsonl",
        "min_file_age_s": 0,
        "on_unreadable_file": "skip",
    }
    path = write_job(tmp_path, source=files, converters=[{"type": "json", "fields": {"n": "int64"}}])
    output = typed(f"distcommit run {path}")
    rejected = "rejected by the run of epoch {}: {}, not published, but in error files below"
    both = rejected.format(2, "2 records of clicks (1), orders (1)") + f" {tmp_path}/output/_rejected"
    assert "1 published, 2 rejected to error files" in output
    assert both in output
    assert "committed: all new records; 2 of 3 records rejected" in output
    assert "orders: 2 unreadable files skipped, not published: " in output
    assert f"3 unreadable files in 2 datasets, listed by distcommit runs {path} 2" in output
    assert "input problem 3 unreadable files, not published" in output
    assert "2 unreadable files skipped" in typed(f"distcommit runs {path} 2")
    status = typed(f"distcommit status {path}")
    assert both in status
    assert "the last run could not read 3 files of 2 datasets: orders: 2 unreadable files skipped, not" in status
    assert both in typed(f"distcommit dataset list {path}")
    assert "rejected 1" in typed(f"distcommit dataset list {path} --sort rejected")

    write_job(tmp_path, source=files, converters=[{"type": "json", "fields": {"n": "string"}}])
    output = typed(f"distcommit dataset reprocess {path} --all")
    changed = "column n is int64 in published files, and string in the job file (dataset clicks; 3 datasets compared)"
    assert changed in output
    assert changed in typed(f"distcommit runs {path} 5"), "it is recorded"
    assert "reprocessed: read again from error files: 2 records" in output
    assert "1 published, 1 rejected to error files" in output
    assert "The published records are visible now" in output
    assert f"process them again: distcommit dataset reprocess {path} --all" in output
    assert "1 record of clicks (1)" in typed(f"distcommit status {path}")

    assert "published files" not in typed(f"distcommit run {path}"), "the settings are those of the newest run"

    write_job(tmp_path, source=files)
    assert "1 published" in typed(f"distcommit dataset reprocess {path} --all")
    assert "rejected by the run" not in typed(f"distcommit status {path}")
    assert "nothing to reprocess" in typed(f"distcommit dataset reprocess {path} --all")


def test_run_that_makes_a_column_of_numbers_text_notes_the_value_that_is_not_a_number(tmp_path: Path) -> None:
    (tmp_path / "in" / "orders").mkdir(parents=True)
    file = tmp_path / "in" / "orders" / "1.csv"
    file.write_text('id,price,zip\n1,2.5,01234\n"2","3",11111\n3,n/a,22222\n4,9.5,33333\n')
    files = {"type": "files", "paths": [f"{tmp_path}/in/{{dataset}}/*"], "format": "csv", "min_file_age_s": 0}
    path = write_job(tmp_path, source=files, converters=[{"type": "parse"}])
    output = typed(f"distcommit run {path}")
    noted = (
        f"orders: column price is text, because 'n/a', record 3 of {file}, is not a number, although most values are"
    )
    assert noted.replace(" ", "") in output.replace(" ", "")
    assert "set `columns` of the converter parse, and list texts for missing values in source.nulls" in output
    assert "column id" not in output
    assert "column zip" not in output, "codes are text on purpose"
    file.with_name("2.csv").write_text("id,price,zip\n5,x,4\n")
    assert "note on columns" not in typed(f"distcommit run {path}"), "the type is known"

    assert "published files" not in typed(f"distcommit check {path}"), "the types are those of the files"
    files["nulls"] = ["n/a", "x"]
    write_job(tmp_path, source=files, converters=[{"type": "parse", "columns": {"id": "int64", "price": "float64"}}])
    checked = typed(f"distcommit check {path}")
    assert "column price is string in published files, and double in the job file (dataset orders;" in checked
    assert "column id" not in checked, "its type is the same"
    file.with_name("3.csv").write_text("id,price,zip\n6,4.5,4\n")
    output = typed(f"distcommit run {path}")
    warning = "note on columns job file: column price" + checked.partition("column price")[2].partition("`")[0]
    assert warning in output
    command = checked.partition("publish all records again in new folders: `")[2].partition("`")[0]
    assert "6 published" in typed(command)
    written = pyarrow.dataset.dataset(tmp_path / "output-2" / "orders").to_table().column("price")
    assert sorted(written.drop_null().to_pylist()) == [2.5, 3.0, 4.5, 9.5]
