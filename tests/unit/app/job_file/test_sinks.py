"""The `sink` section of a job file, and the checks of an unusable sink before a run does anything else."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from distcommit import Job
from distcommit.app.job_file import built_in_types
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.load_job_file import load_config
from distcommit.cli.main import app
from distcommit.core.commit_groups import bucket_of
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.sink import Abilities, Sink
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.python.sink import PythonSink
from distcommit.testing.fakes.sqlite_sink import SqliteCommitter, SqliteSink

JOB = """\
job: rows
source: {type: python, class: "tests.integration.parts.named_source:NamedSource", options: {names: [a]}}
paths: {store: store, staging: staging, output: output}
"""
SQLITE = 'sink: {type: python, class: "distcommit.testing.fakes.sqlite_sink:SqliteSink", options: {path: "%s"}}\n'


class Nameless(SqliteSink):
    """A sink with an empty name."""

    name = ""


class TableSink(SqliteSink):
    """A sink that writes datasets to the table that their name begins with."""

    grouped_by = "table"

    def commit_group(self, dataset_urn: str) -> str:
        return dataset_urn.split(".", 1)[0]


class Silent(SqliteSink):
    """A sink that does not report its commits."""

    abilities = Abilities()


class Choosy(SqliteSink):
    """A sink that requires a column."""

    def check_schema(self, schema: pa.Schema) -> None:
        if "price" not in schema.names:
            raise ConfigurationError("no column 'price'")


class Unsaid(SqliteSink):
    """A sink with commit groups but without `grouped_by`."""

    def commit_group(self, dataset_urn: str) -> str:
        return "all"


class Undone(SqliteSink):
    """A sink with `grouped_by` but without commit groups."""

    grouped_by = "table"


class Unwritten(TableSink):
    """A sink whose `grouped_by` is not a text."""

    grouped_by = None  # type: ignore[assignment]


def config(folder: Path, sink: str = "") -> JobConfig:
    (folder / "job.yaml").write_text(JOB + sink)
    return load_config(folder / "job.yaml")


@pytest.mark.parametrize("sink", ["", "sink: {}\n", "sink: {compression: snappy}\n", "sink: {type: files}\n"])
def test_sink_without_a_type_is_files(tmp_path: Path, sink: str) -> None:
    sink_settings = config(tmp_path, sink).sink
    assert isinstance(sink_settings, FileSink)
    assert sink_settings.compression == ("snappy" if "snappy" in sink else "zstd")


def test_custom_sink_is_loaded_from_its_class(tmp_path: Path) -> None:
    sink: Any = pickle.loads(pickle.dumps(config(tmp_path, SQLITE % (tmp_path / "rows.db")).sink))
    assert isinstance(sink, PythonSink)
    assert sink.name == "sqlite"
    context = CommitterContext(LocalFileSystem(), "/staging", "/output", "store")
    committer = sink.committers["sqlite"].open_committer(context)
    assert isinstance(committer, SqliteCommitter)
    committer.close()
    assert (tmp_path / "rows.db").exists()
    assert pickle.loads(pickle.dumps(sink)).instance == SqliteSink(str(tmp_path / "rows.db")), (
        "the sink must survive pickling after its instance was created"
    )


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("sink: {compresion: snappy}", "sink.compresion is not a setting of type files; did you mean 'compression'?"),
        (
            "sink: {type: files, partition_by: {colum: t}}",
            "sink.partition_by.colum is not a setting; did you mean 'column'?",
        ),
        ("sink: {type: python, clas: x}", "sink.clas is not a setting of type python; did you mean 'class'?"),
        ("sink: {type: python}", "sink.class must be set"),
        (
            "sink: {type: python, class: x, format: avro}",
            "sink.format is a setting of types files, kafka; this sink is of type python",
        ),
        (
            "sink: {type: pyton, class: x}",
            f"sink.type must be one of {', '.join(built_in_types.types_of('sink'))}; found pyton; did you mean python?",
        ),
        ("sink: files", "sink must be a section with type and the settings of that type"),
    ],
)
def test_invalid_sink_section_is_refused_with_the_key(tmp_path: Path, sink: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        config(tmp_path, sink)


FORKED = """\
fork:
  type: all
  branches:
    left: {sink: {type: postgresql, url: "postgresql://host/a", table: a}}
    right: {sink: {type: postgresql, url: "postgresql://host/b", table: %s}}
"""


def test_two_branches_with_one_sink_name_are_refused(tmp_path: Path) -> None:
    """Two different databases do not make the names different."""
    fork = config(tmp_path, FORKED % "b").fork
    assert fork is not None
    assert [branch.sink.name for branch in fork.branches.values()] == ["postgresql:a", "postgresql:b"]
    with pytest.raises(
        ConfigurationError,
        match=r"branches\.right\.sink must have another name than that of branch left.*'postgresql:a'; set stored_as",
    ):
        config(tmp_path, FORKED % "a")
    fork = config(tmp_path, FORKED % "a, stored_as: second").fork
    assert fork is not None
    assert [branch.sink.name for branch in fork.branches.values()] == ["postgresql:a", "postgresql:a@second"]


@pytest.mark.parametrize(
    ("sink", "tables"),
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
def test_two_branches_with_the_same_tables_are_refused(tmp_path: Path, sink: str, tables: str) -> None:
    branches = f"left: {{sink: {sink}}}}}, right: {{sink: {sink}, stored_as: other}}}}"
    with pytest.raises(ConfigurationError, match=re.escape(f"fork.branches.right.sink must not write to {tables}")):
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
def test_unusable_sink_class_is_refused_before_anything_is_written(tmp_path: Path, name: str, message: str) -> None:
    sink = f'sink: {{type: python, class: "{name}", options: {{path: x}}}}'
    with pytest.raises(ConfigurationError, match=message):
        Job(config(tmp_path, sink)).run()
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_unknown_options_of_a_sink_class_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unexpected keyword argument 'pth'"):
        Job(config(tmp_path, (SQLITE % "x").replace("path:", "pth:"))).run()


def test_audit_of_a_sink_that_does_not_report_its_commits_is_refused(tmp_path: Path) -> None:
    Job(config(tmp_path)).open_store(create=True)
    config(tmp_path, OWN % ("Silent", "x"))
    result = CliRunner().invoke(app, ["audit", str(tmp_path / "job.yaml")])
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert "a sink of this job does not report its commits [sink=sqlite, branch=main]" in message
    assert "count each dataset's records at the sink's target" in message


OWN = 'sink: {type: python, class: "tests.unit.app.job_file.test_sinks:%s", options: {path: "%s"}}\n'


def test_commit_groups_of_the_sink_decide_the_buckets_of_datasets(tmp_path: Path) -> None:
    job = Job(config(tmp_path, OWN % ("TableSink", tmp_path / "rows.db")))
    store = pickle.loads(pickle.dumps(job.open_store(create=True)))
    with pytest.raises(ConfigurationError, match="the store knows no such dataset"):
        job.set_watermark("t.a", {"0": 1})
    assert store.bucket_of("t.a") == store.bucket_of("t.b") == bucket_of("t", store.buckets)
    job.set_watermark("t.a", {"0": 1}, new=True)
    assert "t.a" in store.bucket_log(bucket_of("t", store.buckets)).refresh().datasets
    assert [line.record for line in job.log(dataset="t.a").lines][-1] == "SetWatermark"


def test_store_is_refused_if_the_commit_groups_of_the_sink_differ(tmp_path: Path) -> None:
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
def test_sink_with_incomplete_commit_groups_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="must have both or none of commit_group and grouped_by"):
        Job(config(tmp_path, OWN % (name, tmp_path / "rows.db"))).run()
    assert not (tmp_path / "store").exists()


def test_schema_check_of_a_custom_sink_is_called(tmp_path: Path) -> None:
    sink = config(tmp_path, OWN % ("Choosy", tmp_path / "rows.db")).sink
    sink.check_schema(pa.schema([("price", pa.int64())]))
    with pytest.raises(ConfigurationError, match="no column 'price'"):
        sink.check_schema(pa.schema([("prize", pa.int64())]))


def test_column_required_by_the_sink_and_dropped_by_a_converter_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    flow = "converters: [{type: select, columns: [n, at]}]\nsink: {partition_by: {field: country}}\n"
    with pytest.raises(
        ConfigurationError, match=r"the sink of branch main can't store the records of select.*'country'"
    ):
        Job(config(tmp_path, flow)).run()
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_python_sink_delegates_every_member_of_sink() -> None:
    file_sink_members = {"file_access"}
    members = {name for name in vars(Sink) if not name.startswith("_")} - file_sink_members
    assert members - vars(PythonSink).keys() == set()
