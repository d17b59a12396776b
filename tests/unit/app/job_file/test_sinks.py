"""The `sink` section of a job file, and what a job does before anything else about a sink that can't be used."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from distcommit import Job
from distcommit.app.job_file import built_in
from distcommit.app.job_file.config import JobConfig, load_config
from distcommit.cli.main import app
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.sink import Abilities, Sink
from distcommit.core.urn import bucket_of
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.python.sink import PythonSink
from distcommit.testing.fakes.sqlite_sink import SqliteCommitter, SqliteSink

JOB = """\
job: rows
source: {type: python, class: "tests.integration.named_source:NamedSource", options: {names: [a]}}
paths: {store: store, staging: staging, output: output}
"""
SQLITE = 'sink: {type: python, class: "distcommit.testing.fakes.sqlite_sink:SqliteSink", options: {path: "%s"}}\n'


class Nameless(SqliteSink):
    """Its name is empty."""

    name = ""


class TableSink(SqliteSink):
    """Datasets go to the table that their name begins with."""

    grouped_by = "table"

    def commit_group(self, dataset_urn: str) -> str:
        return dataset_urn.split(".", 1)[0]


class Silent(SqliteSink):
    """Tells nothing of what it has committed."""

    abilities = Abilities()


class Choosy(SqliteSink):
    """Wants a column."""

    def check_schema(self, schema: pa.Schema) -> None:
        if "price" not in schema.names:
            raise ConfigurationError("no column 'price'")


class Unsaid(SqliteSink):
    """It names groups and does not say by what."""

    def commit_group(self, dataset_urn: str) -> str:
        return "all"


class Undone(SqliteSink):
    """It says by what, and names none."""

    grouped_by = "table"


class Unwritten(TableSink):
    """Its rule is no text."""

    grouped_by = None  # type: ignore[assignment]


def config(folder: Path, sink: str = "") -> JobConfig:
    (folder / "job.yaml").write_text(JOB + sink)
    return load_config(folder / "job.yaml")


@pytest.mark.parametrize("sink", ["", "sink: {}\n", "sink: {compression: snappy}\n", "sink: {type: files}\n"])
def test_files_are_the_sink_that_needs_no_type(tmp_path: Path, sink: str) -> None:
    found = config(tmp_path, sink).sink
    assert isinstance(found, FileSink)
    assert found.compression == ("snappy" if "snappy" in sink else "zstd")


def test_a_sink_of_ones_own_is_named_by_its_class(tmp_path: Path) -> None:
    found: Any = pickle.loads(pickle.dumps(config(tmp_path, SQLITE % (tmp_path / "rows.db")).sink))
    assert isinstance(found, PythonSink)
    assert found.name == "sqlite"
    context = CommitterContext(LocalFileSystem(), "/staging", "/output", "store")
    committer = found.committers["sqlite"].open_committer(context)
    assert isinstance(committer, SqliteCommitter)
    committer.close()
    assert (tmp_path / "rows.db").exists()
    assert pickle.loads(pickle.dumps(found)).instance == SqliteSink(str(tmp_path / "rows.db")), "also once it was made"


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("sink: {compresion: snappy}", "unknown key 'sink.compresion', did you mean 'compression'?"),
        ("sink: {type: files, partition_by: {colum: t}}", "'sink.partition_by.colum', did you mean 'column'?"),
        ("sink: {type: python, clas: x}", "unknown key 'sink.clas', did you mean 'class'?"),
        ("sink: {type: python}", "sink.class is missing"),
        ("sink: {type: python, class: x, format: avro}", "unknown key 'sink.format'"),
        (
            "sink: {type: pyton, class: x}",
            f"sink: `type` is one of {', '.join(built_in.types_of('sink'))}; found pyton",
        ),
        ("sink: files", "sink: a section, with `type` and settings"),
    ],
)
def test_a_sink_section_that_is_wrong_is_an_error_that_names_the_key(tmp_path: Path, sink: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        config(tmp_path, sink)


FORKED = """\
fork:
  type: all
  branches:
    left: {sink: {type: postgresql, url: "postgresql://host/a", table: a}}
    right: {sink: {type: postgresql, url: "postgresql://host/b", table: %s}}
"""


def test_two_branches_whose_commits_are_stored_with_one_name_are_refused(tmp_path: Path) -> None:
    """Also of two databases."""
    fork = config(tmp_path, FORKED % "b").fork
    assert fork is not None
    assert [branch.sink.name for branch in fork.branches.values()] == ["postgresql:a", "postgresql:b"]
    with pytest.raises(ConfigurationError, match=r"2 branches have a sink of the name 'postgresql:a'.*`stored_as`"):
        config(tmp_path, FORKED % "a")
    fork = config(tmp_path, FORKED % "a, stored_as: second").fork
    assert fork is not None
    assert [branch.sink.name for branch in fork.branches.values()] == ["postgresql:a", "postgresql:a@second"]


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        (
            "{type: postgresql, url: 'postgresql://host/a', schema: s, table: a",
            "tables a of postgresql://host/a, schema s",
        ),
        ("{type: mariadb, url: 'mariadb://user@host/a', table: a", "tables a of mariadb://user@host/a"),
        ("{type: sqlite, path: /a.db", "tables {dataset} of /a.db"),
        (
            "{type: iceberg, namespace: n, catalog: {type: sql, uri: 'sqlite://'}",
            "Iceberg tables n.{dataset} of sqlite://",
        ),
        ("{type: delta, location: /a", "Delta tables /a/{dataset}"),
    ],
)
def test_two_branches_that_write_to_the_same_tables_are_refused(tmp_path: Path, sink: str, told: str) -> None:
    branches = f"left: {{sink: {sink}}}}}, right: {{sink: {sink}, stored_as: other}}}}"
    with pytest.raises(ConfigurationError, match=re.escape(f"2 branches write their records to {told}")):
        config(tmp_path, f"fork: {{type: all, branches: {{{branches}}}}}\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.such.module:Sink", "the sink's class cannot be used .*No module named 'no'"),
        (
            "distcommit.testing.fakes.sqlite_sink:SqlSink",
            "the sink's class cannot be used .*has no attribute 'SqlSink'",
        ),
        ("distcommit.testing.fakes.sqlite_sink", "the sink's class cannot be used"),
        ("builtins:dict", "not a subclass of distcommit.Sink"),
        ("tests.unit.app.job_file.test_sinks:Nameless", "the sink's class has no name"),
    ],
)
def test_a_class_that_can_not_be_used_is_an_error_before_anything_is_done(
    tmp_path: Path, name: str, message: str
) -> None:
    sink = f'sink: {{type: python, class: "{name}", options: {{path: x}}}}'
    with pytest.raises(ConfigurationError, match=message):
        Job(config(tmp_path, sink)).run()
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_options_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unexpected keyword argument 'pth'"):
        Job(config(tmp_path, (SQLITE % "x").replace("path:", "pth:"))).run()


def test_the_audit_of_a_sink_that_tells_nothing_says_that_it_can_not_audit_it(tmp_path: Path) -> None:
    Job(config(tmp_path)).open_store(create=True)
    config(tmp_path, OWN % ("Silent", "x"))
    result = CliRunner().invoke(app, ["audit", str(tmp_path / "job.yaml")])
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "a sink of this job does not report its commits [sink=sqlite, branch=main]" in said
    assert "count each dataset's records at the sink's target" in said


OWN = 'sink: {type: python, class: "tests.unit.app.job_file.test_sinks:%s", options: {path: "%s"}}\n'


def test_a_job_file_reaches_the_rule_by_which_its_sink_groups_datasets(tmp_path: Path) -> None:
    job = Job(config(tmp_path, OWN % ("TableSink", tmp_path / "rows.db")))
    store = pickle.loads(pickle.dumps(job.open_store(create=True)))
    with pytest.raises(ConfigurationError, match="the store knows no such dataset"):
        job.set_watermark("t.a", {"0": 1})
    assert store.bucket_of("t.a") == store.bucket_of("t.b") == bucket_of("t", store.buckets)
    job.set_watermark("t.a", {"0": 1}, new=True)
    assert "t.a" in store.bucket_log(bucket_of("t", store.buckets)).refresh().datasets
    assert [line.record for line in job.log(dataset="t.a").lines][-1] == "SetWatermark"


def test_a_store_is_refused_with_another_rule_for_groups(tmp_path: Path) -> None:
    grouped = Job(config(tmp_path, OWN % ("TableSink", tmp_path / "rows.db")))
    grouped.open_store(create=True)
    grouped.set_watermark("t.a", {"0": 1}, new=True)
    plain = Job(config(tmp_path, SQLITE % (tmp_path / "rows.db")))
    for act in (plain.run, plain.recover, lambda: plain.set_watermark("t.a", {"0": 2}), lambda: plain.retry("t.a")):
        with pytest.raises(ConfigurationError, match="differs from the one that this store was filled with") as caught:
            act()
        assert (caught.value.expected, caught.value.found) == ("sink.commit_group: table", "sink.commit_group: dataset")
    assert [row.dataset for row in plain.status().datasets] == ["t.a"]


@pytest.mark.parametrize("name", ["Unsaid", "Undone", "Unwritten"])
def test_a_sink_that_does_not_say_how_it_groups_is_refused_before_anything_is_done(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="must have both or none of commit_group and grouped_by"):
        Job(config(tmp_path, OWN % (name, tmp_path / "rows.db"))).run()
    assert not (tmp_path / "store").exists()


def test_a_sink_of_ones_own_is_asked_whether_it_can_hold_what_comes_to_it(tmp_path: Path) -> None:
    sink = config(tmp_path, OWN % ("Choosy", tmp_path / "rows.db")).sink
    sink.check_schema(pa.schema([("price", pa.int64())]))
    with pytest.raises(ConfigurationError, match="no column 'price'"):
        sink.check_schema(pa.schema([("prize", pa.int64())]))


def test_what_a_sink_asks_for_and_a_converter_has_left_out_is_told_before_anything_is_done(tmp_path: Path) -> None:
    flow = "converters: [{type: select, columns: [n, at]}]\nsink: {partition_by: {field: country}}\n"
    with pytest.raises(ConfigurationError, match=r"the sink of branch main can write, from select.*'country'"):
        Job(config(tmp_path, flow)).run()
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_whatever_a_sink_may_say_is_asked_of_the_class_that_a_job_file_names() -> None:
    of_files_alone = {"file_access"}
    says = {name for name in vars(Sink) if not name.startswith("_")} - of_files_alone
    assert says - vars(PythonSink).keys() == set()
