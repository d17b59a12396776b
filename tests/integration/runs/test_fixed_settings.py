"""Fixed settings: changed in the job file, refused, and migrated by the printed command."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from distcommit import Job
from distcommit.app.demo.broker import MockBroker
from distcommit.cli.main import app
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.io_batching import run_alone
from distcommit.engine.driver.run import RunResult
from distcommit.engine.system_clock import SystemClock
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_records
from distcommit.stores.logs.fencing import begin_run, fence_bucket
from distcommit.stores.state.job_lock import JobLock
from tests.jobs.kafka_job import KafkaJob, kafka_job


def run(job: KafkaJob, spark: SparkSession, *overrides: str) -> RunResult:
    result = Job.from_file(job.path, overrides, session=spark).run()
    assert result.succeeded, result.reasons.entries
    return result


def typed(command: str) -> tuple[int, str]:
    """Run a printed command; return its exit code and its output without line breaks."""
    program, *arguments = shlex.split(command)
    assert program == "distcommit"
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


def printed_command(output: str) -> str:
    (command,) = re.findall(r"`(distcommit migrate import-watermarks [^`]+)`", output)
    return str(command)


def overrides_in(command: str) -> list[str]:
    words = shlex.split(command)
    return [words[place + 1] for place, word in enumerate(words) if word == "--set"]


def published(*outputs: Path) -> Counter[tuple[str, int, int]]:
    """Return how often topic, partition and offset are published in all of these outputs."""
    offsets: Counter[tuple[str, int, int]] = Counter()
    for output in outputs:
        for path in output.rglob("*.parquet"):
            topic = path.relative_to(output).parts[0].partition("@")[0]
            rows: list[dict[str, Any]] = read_records(LocalFileSystem(), str(path)).to_pylist()
            offsets.update((topic, row["kafka_partition"], row["kafka_offset"]) for row in rows)
    return offsets


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize(("before", "after"), [("topic", "partition"), ("partition", "topic")])
def test_changed_dataset_rule_is_refused_and_migrated_by_the_printed_command(
    tmp_path: Path, spark: SparkSession, before: str, after: str
) -> None:
    with kafka_job(tmp_path, {"a": 2, "b": 1}, source={"dataset": before}) as job:
        job.produce(10)
        run(job, spark)
        job.produce(5)
        at_first = files(tmp_path / "output")
        job.write(source={"dataset": after})
        for command in (
            "run",
            "recover",
            "dataset set-watermark {} a null",
            "dataset release {} a retry",
            "store rebuild",
        ):
            code, output = typed(f"distcommit {command if '{}' in command else command + ' {}'}".format(job.path))
            assert code == 2, output
            assert "source.dataset" in output
            assert f"expected source.dataset: {before}; found source.dataset: {after}" in output
        assert typed(f"distcommit status {job.path}")[0] == 0, "looking is allowed"
        assert files(tmp_path / "output") == at_first
        command = printed_command(output)
        code, output = typed(command)
        assert code == 0, output
        new = overrides_in(command)
        assert run(job, spark, *new).totals.records_published == 15
        assert run(job, spark, *new).totals.records_published == 0
        assert files(tmp_path / "output") == at_first
        assert typed(f"distcommit audit --deep {job.path}")[0] == 0
        assert typed(shlex.join(["distcommit", "audit", "--deep", str(job.path), *sets(new)]))[0] == 0
        counts = published(tmp_path / "output", tmp_path / "output-2")
        assert len(counts) == counts.total() == job.produced, "nothing missing, nothing twice"
        code, output = typed(command)
        assert (code, "kept" in output) == (0, True), "again, it sets nothing back"
        assert run(job, spark, *new).totals.records_published == 0


@pytest.mark.parametrize(("before", "after"), [("topic", "partition"), ("partition", "topic")])
def test_printed_command_renames_datasets_and_back_again(
    tmp_path: Path, spark: SparkSession, before: str, after: str
) -> None:
    with kafka_job(tmp_path, {"a": 2, "b": 1}, source={"dataset": before}) as job:
        job.produce(10)
        run(job, spark)
        for rule in (after, before, after):
            job.produce(5)
            job.write(source={"dataset": rule})
            code, output = typed(f"distcommit run {job.path}")
            assert code == 2, output
            (command,) = re.findall(r"`(distcommit store rebucket [^`]+)`", output)
            code, output = typed(str(command))
            assert code == 0, output
            assert f"source.dataset {rule}" in output
            assert typed(str(command))[0] == 0, "again, there is nothing to do"
            assert run(job, spark).totals.records_published == 15
            code, output = typed(f"distcommit audit --deep {job.path}")
            assert code == 0, output
        counts = published(tmp_path / "output")
        assert len(counts) == counts.total() == job.produced, "nothing missing, nothing twice"


def test_store_lost_after_datasets_were_renamed_is_rebuilt_with_the_new_names(
    tmp_path: Path, spark: SparkSession
) -> None:
    with kafka_job(tmp_path, {"a": 2, "b": 1}) as job:
        job.produce(10)
        run(job, spark)
        job.write(source={"dataset": "partition"})
        assert typed(f"distcommit store rebucket {job.path}")[0] == 0
        job.produce(5)  # nothing of it is read before the store is lost
        shutil.rmtree(tmp_path / "store")
        code, output = typed(f"distcommit store rebuild {job.path}")
        assert code == 0, output
        assert run(job, spark).totals.records_published == 15
        assert typed(f"distcommit audit --deep {job.path}")[0] == 0
        counts = published(tmp_path / "output")
        assert len(counts) == counts.total() == job.produced


def sets(overrides: list[str]) -> list[str]:
    return [part for text in overrides for part in ("--set", text)]


def test_a_change_by_set_is_refused_and_in_the_printed_command(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        job.produce(3)
        run(job, spark)
        code, output = typed(f"distcommit run {job.path} --set source.dataset=partition")
        assert code == 2
        command = printed_command(output)
        assert "source.dataset=partition" in overrides_in(command)
        assert typed(command)[0] == 0
        assert run(job, spark, *overrides_in(command)).totals.records_published == 0


def test_store_without_recorded_settings_records_them_in_its_next_run(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        job.produce(3)
        run(job, spark)
        (document,) = (tmp_path / "store" / "settings").iterdir()
        document.unlink()  # as a store that an older version filled
        run(job, spark)
        (again,) = (tmp_path / "store" / "settings").iterdir()
        assert again.name == document.name
        job.write(source={"dataset": "partition"})
        assert typed(f"distcommit run {job.path}")[0] == 2


def test_another_cluster_is_refused_before_anything_is_planned(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job, MockBroker.start({"a": 1}) as another:
        job.produce(3)
        run(job, spark)
        job.write(source={"brokers": another.bootstrap_servers})
        KafkaJob(tmp_path, another, {"a": 1}).produce(9)
        with pytest.raises(ConfigurationError, match=r"source\.cluster: .*To do: correct source\.brokers"):
            Job.from_file(job.path, session=spark).run()
        assert job.audit().records == 3
        job.write(source={"brokers": f"localhost:{job.broker.bootstrap_servers.rpartition(':')[2]}"})
        job.produce(2)
        assert run(job, spark).totals.records_published == 2, "brokers may be named in another way"


def test_settings_of_new_files_and_of_the_selection_may_change(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 2}) as job:
        job.produce(5)
        run(job, spark)
        job.produce(5)
        job.write(
            source={"start": "latest", "topics": [], "topic_patterns": ["a"], "records_per_work_unit": 3},
            sink={"format": "avro", "compression": "none", "partition_by": {"granularity": "hour"}},
            converters=[{"type": "json", "fields": {"n": "int64"}}],
            commit={"policy": "successful", "delivery": "at_least_once", "durability": "none"},
        )
        assert run(job, spark).totals.records_published == 10
        assert job.audit(deep=False).gaps == 0


def test_store_staging_and_output_may_be_moved_together(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        job.produce(3)
        run(job, spark)
        (tmp_path / "moved").mkdir()
        for name in ("store", "staging", "output"):
            (tmp_path / name).rename(tmp_path / "moved" / name)
        job.write(paths={name: f"moved/{name}" for name in ("store", "staging", "output")})
        job.produce(2)
        run(job, spark)
        job.assert_exact()


class TestTakingOver:
    """`migrate import-watermarks NEW.yaml --from OLD.yaml` where something prevents it."""

    @pytest.fixture
    def job(self, tmp_path: Path, spark: SparkSession) -> Any:
        with kafka_job(tmp_path, {"a": 1, "b": 1}) as job:
            job.produce(3)
            run(job, spark)
            yield job

    def command(self, job: KafkaJob, *arguments: str) -> str:
        new = [f"paths.{name}=new-{name}" for name in ("store", "staging", "output")]
        return shlex.join(
            [
                "distcommit",
                "migrate",
                "import-watermarks",
                str(job.path),
                *sets(new),
                "--from",
                str(job.path),
                *arguments,
            ]
        )

    def test_dry_run_changes_neither_job(self, job: KafkaJob, tmp_path: Path) -> None:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        code, output = typed(self.command(job, "--dry-run"))
        assert (code, "2 watermarks would be set" in output) == (0, True), output
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

    def test_a_job_does_not_take_over_from_itself(self, job: KafkaJob) -> None:
        code, output = typed(f"distcommit migrate import-watermarks {job.path} --from {job.path}")
        assert (code, "from its own store" in output) == (2, True), output

    def test_a_live_run_of_the_other_job_is_not_disturbed(self, job: KafkaJob) -> None:
        store = Job.from_file(job.path).open_store(create=False)
        with JobLock(store.fs, store.roots.store, "r", 30, SystemClock()):
            assert typed(self.command(job))[0] == 3

    def test_paused_run_of_the_other_job_can_seal_nothing_after_the_takeover(self, job: KafkaJob) -> None:
        store = Job.from_file(job.path).open_store(create=False)
        epoch = begin_run(store, "paused")
        for bucket in range(store.buckets):
            run_alone(fence_bucket(store.bucket_log(bucket, epoch), epoch, "paused"))
        assert typed(self.command(job))[0] == 0
        fences = [store.bucket_log(bucket).refresh().fence_epoch for bucket in range(store.buckets)]
        assert min(fences) > epoch
        assert Job.from_file(job.path).audit().exact

    def test_other_number_of_buckets_is_refused_and_adopted_by_the_printed_command(
        self, job: KafkaJob, spark: SparkSession
    ) -> None:
        code, output = typed(f"distcommit run {job.path} --set commit.buckets=3")
        assert code == 2, output
        (command,) = re.findall(r"`(distcommit store rebucket JOB.yaml --buckets 3)`", output)
        assert typed(command.replace("JOB.yaml", str(job.path)))[0] == 0
        job.write(commit={"buckets": 3})
        job.produce(2)
        assert run(job, spark).totals.records_published == 4
        job.assert_exact()
        assert typed(self.command(job))[0] == 0, "another job continues from its newest generation"
