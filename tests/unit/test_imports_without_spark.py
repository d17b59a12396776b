"""Inspection commands and the original design's interface need neither Spark nor a Kafka client."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "confluent_kafka"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
STEPS = """
from distcommit import FsRenameCommitStep, HighWatermarkCommitStep, LocalFileSystem, LogCommitStepStore
from distcommit import StepContext, Watermark

root = sys.argv[1]
roots = StepContext(LocalFileSystem(), staging_root=f"{root}/staging", output_root=f"{root}/output")
for folder in (roots.staging_root, roots.output_root):
    roots.fs.make_folders(folder)
with open(f"{roots.staging_root}/a.parquet", "wb") as file:
    file.write(b"a")
store = LogCommitStepStore(roots.fs, f"{root}/stores", roots)
store.create("my-job")
store.put("my-job", "orders", FsRenameCommitStep(roots, "a.parquet", "orders/a.parquet"))
store.put("my-job", "orders", HighWatermarkCommitStep("orders", low=None, high=Watermark({"0": 100})))
store.seal("my-job", "orders")
store.get_commit_sequence("my-job", "orders").commit()
print(store.watermark("my-job", "orders").positions)
"""
LOG = """
from distcommit.core.support.io_batching import run_alone
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol import next_log_record
from distcommit.stores.logs.commit_log import CommitLog

log = CommitLog(LocalFileSystem(), sys.argv[1] + "/log")
log.create()
print(run_alone(log.settle(lambda fold: next_log_record.fence(fold, 1, "run"))).fence_epoch)
"""
COMMAND = """
from distcommit.cli.main import main

sys.argv = ["distcommit", *sys.argv[2:]]
main()
"""
AND_MODULES = """
import json
from distcommit.cli.main import main

sys.argv = ["distcommit", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code
print(json.dumps(sorted(sys.modules)))
"""
NOT_FOR_INSPECTION = (
    "confluent_kafka",
    "distcommit.app.admin",
    "distcommit.app.migration.gobblin",
    "distcommit.app.jobs.job",
    "distcommit.app.telemetry",
    "distcommit.app.running",
    "distcommit.app.serving",
    "distcommit.engine.driver.run",
    "jinja2",
    "pandas",
    "pyarrow.dataset",
    "pyspark",
)
"""Slow imports that inspection commands do not need."""
JOB = """\
job: planes
source: {type: kafka, brokers: "127.0.0.1:1", topics: [idle]}
paths: {store: store, staging: staging, output: output}
"""


def run_without(program: str, *arguments: object) -> str:
    """Return the output of a program where neither Spark nor a Kafka client can be imported."""
    command = [sys.executable, "-c", WITHOUT + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_original_interface_commits_without_spark(tmp_path: Path) -> None:
    assert run_without(STEPS, tmp_path) == "{'0': 100}\n"
    assert (tmp_path / "output/orders/a.parquet").read_bytes() == b"a"


def test_commit_log_is_written_without_spark(tmp_path: Path) -> None:
    assert run_without(LOG, tmp_path) == "1\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "answer"),
    [("status", "datasets"), ("store log", "lines"), ("audit", "exact"), ("check --offline", "flow")],
)
def test_job_is_inspected_without_spark(tmp_path: Path, command: str, answer: str) -> None:
    from distcommit import Job

    job_file = tmp_path / "job.yaml"
    job_file.write_text(JOB)
    Job.from_file(job_file).open_store(create=True)
    assert answer in json.loads(run_without(COMMAND, tmp_path, *command.split(), job_file, "--json"))


@pytest.mark.thorough
def test_report_page_is_written_without_spark(tmp_path: Path) -> None:
    from tests.jobs.reported_run import make_reported_job

    job_file, page = make_reported_job(tmp_path / "job", 4), tmp_path / "report.html"
    document = json.loads(run_without(COMMAND, tmp_path, "report", job_file, "-o", page, "--json"))
    assert (document["report"], document["datasets"]) == (str(page), 4)


@pytest.mark.thorough
def test_committed_files_are_listed_without_spark(tmp_path: Path) -> None:
    from distcommit import Job
    from distcommit.core.records.job_log_records import CutPhase
    from distcommit.stores.logs.fencing import begin_run
    from distcommit.stores.logs.log_anchors import record_cut_began
    from distcommit.stores.snapshots.snapshot_manifests import prepare_snapshots, put_snapshot

    job_file = tmp_path / "job.yaml"
    job_file.write_text(JOB)
    store = Job.from_file(job_file).open_store(create=True)
    epoch = begin_run(store, "run")
    prepare_snapshots(store)
    put_snapshot(store, epoch, "run", CutPhase.BEGAN, [], 1)
    record_cut_began(store, epoch, [])
    assert json.loads(run_without(COMMAND, tmp_path, "dataset", "files", job_file, "--json"))["files"] == {}


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["status", "dataset list", "dataset steps", "runs"])
def test_inspection_commands_import_no_slow_module(tmp_path: Path, command: str) -> None:
    from distcommit import Job

    job_file = tmp_path / "job.yaml"
    job_file.write_text(JOB)
    Job.from_file(job_file).open_store(create=True)
    words = [sys.executable, "-c", "import sys\n" + AND_MODULES, *command.split(), str(job_file)]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    loaded: list[str] = json.loads(result.stdout.splitlines()[-1])
    assert "distcommit.app.jobs.stored_job" in loaded
    assert [
        name for name in loaded if any(name == module or name.startswith(f"{module}.") for module in NOT_FOR_INSPECTION)
    ] == []


OF_A_FORMAT = {"avro": {"fastavro"}, "orc": {"pyarrow.orc"}, "csv": {"pyarrow.csv"}, "jsonl": set(), "parquet": set()}
"""Modules that only one file format needs."""
EXECUTOR = """
import distcommit.engine.reading.ingest, distcommit.spark.task_launch
import json, sys
from pathlib import Path

import pyarrow as pa

from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.sink import FileSink

root, form = sys.argv[1:]
area = StagingArea(LocalFileSystem(), f"{root}/7", "7", f"{root}/output")
writer = FileSink(format=form).open_writer(AttemptIdentity("run", 7, "t", "w", "a"), area, Origin(None, ""))
writer.write(pa.RecordBatch.from_pydict({"value": [1, 2]}))
[file] = writer.prepare_commit().files
written = f"{root}/{file.staged_path}"
assert read_footer(area.fs, written) and read_records(area.fs, written).num_rows == 2
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("form", OF_A_FORMAT)
def test_executor_imports_only_the_modules_of_its_format(tmp_path: Path, form: str) -> None:
    words = [sys.executable, "-c", EXECUTOR, str(tmp_path), form]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    of_formats = {name for names in OF_A_FORMAT.values() for name in names}
    assert of_formats.intersection(json.loads(result.stdout)) == OF_A_FORMAT[form]


NOT_FOR_EXECUTORS = ("confluent_kafka", "duckdb", "pandas", "pyspark")
"""Slow imports that an executor of a job without them must not make."""
FUNCTIONS = """
import distcommit.engine.committing.drain, distcommit.engine.committing.recover
import distcommit.engine.planning.plan_partition, distcommit.engine.reading.ingest
import json, pickle, sys
from pathlib import Path

flow = pickle.loads(Path(sys.argv[1]).read_bytes())
flow.source.open().close()
print(json.dumps(sorted(sys.modules)))
"""
SOURCES = {
    "files": '{type: files, paths: ["%s/{dataset}/*.jsonl"], format: jsonl}',
    "python": '{type: python, class: "own:Own"}  # %s',
}
OWN = """
from distcommit import Extractor, Source

class Own(Source):
    def plan(self, owned, states):
        return iter(())

    def open(self):
        return Nothing()

class Nothing(Extractor):
    def extract(self, unit):
        raise AssertionError("there is no work unit")

    def close(self):
        pass
"""


@pytest.mark.thorough
@pytest.mark.parametrize("source", SOURCES)
def test_executor_imports_no_slow_module_that_its_job_does_not_use(tmp_path: Path, source: str) -> None:
    from distcommit.app.job_file.load_job_file import load_config

    job_file, flow = tmp_path / "job.yaml", tmp_path / "flow"
    paths = "paths: {store: store, staging: staging, output: output}"
    job_file.write_text(f"job: lines\nsource: {SOURCES[source] % tmp_path}\n{paths}\n")
    flow.write_bytes(pickle.dumps(load_config(job_file).task_flow()))
    (tmp_path / "own.py").write_text(OWN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-c", FUNCTIONS, str(flow)]
    result = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    loaded: list[str] = json.loads(result.stdout)
    assert f"distcommit.sources.{source}.source" in loaded
    assert sorted({name.partition(".")[0] for name in loaded}.intersection(NOT_FOR_EXECUTORS)) == []
