"""Moving to this program, moving its folders, and losing them: each through a job file and the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from distcommit import Job
from distcommit.cli.main import app
from distcommit.core.errors import ConfigurationError, StaleStoreError
from tests.jobs.kafka_job import KafkaJob, kafka_job


def run(job: KafkaJob, spark: SparkSession, path: Path | None = None) -> None:
    assert Job.from_file(path or job.path, session=spark).run().succeeded


def command(name: str, path: Path, *arguments: str) -> tuple[int, Any, str]:
    done = CliRunner().invoke(app, [*name.split(), str(path), "--json", *arguments])
    lines = done.stdout.strip().splitlines()
    return done.exit_code, json.loads(lines[-1]) if lines else {}, done.stderr


class TestStoreOlderThanItsOutput:
    @pytest.mark.slow
    def test_a_restored_backup_is_refused_and_rebuilt(self, tmp_path: Path, spark: SparkSession) -> None:
        with kafka_job(tmp_path, {"a": 2, "b": 1}, source={"records_per_work_unit": 4}) as job:
            job.produce(10, days=2)
            run(job, spark)
            shutil.copytree(tmp_path / "store", tmp_path / "backup")
            for _ in range(2):
                job.produce(7, days=2)
                run(job, spark)
            before = Job.from_file(job.path).status()
            shutil.rmtree(tmp_path / "store")
            (tmp_path / "backup").rename(tmp_path / "store")
            published = files(tmp_path / "output")
            code, _, errors = job.cli("run")
            assert code == 5
            assert "the store is older than its published output" in errors
            assert "distcommit store rebuild" in errors
            assert files(tmp_path / "output") == published
            code, report, _ = command("store rebuild", job.path, "--dry-run")
            assert (code, report["written"], report["datasets"], report["set_aside_count"]) == (0, False, 2, 0)
            code, report, _ = command("store rebuild", job.path)
            assert (code, report["written"]) == (0, True)
            after = Job.from_file(job.path).status()
            assert [row.positions for row in after.datasets] == [row.positions for row in before.datasets]
            assert after.epoch > before.epoch
            job.assert_exact()
            job.produce(5)
            assert job.run()["succeeded"]
            job.assert_exact()

    def test_lost_store_is_rebuilt_from_the_published_files(self, tmp_path: Path, spark: SparkSession) -> None:
        with kafka_job(tmp_path, {"a": 2}) as job:
            for _ in range(2):
                job.produce(10, days=3)
                run(job, spark)
            shutil.rmtree(tmp_path / "store")
            with pytest.raises(StaleStoreError, match="another store of the job"):
                run(job, spark)
            assert not (tmp_path / "store" / "store.json").exists()
            code, report, _ = command("store rebuild", job.path)
            assert (code, report["written"], report["set_aside_count"]) == (0, True, 0)
            job.assert_exact()
            job.produce(3)
            run(job, spark)
            job.assert_exact()

    def test_a_store_copied_in_mid_run_is_refused_once_that_run_has_ended(
        self, tmp_path: Path, spark: SparkSession
    ) -> None:
        with kafka_job(tmp_path, {"a": 1}) as job:
            job.produce(5)
            run(job, spark)
            log = sorted((tmp_path / "store" / "log" / "job").iterdir())
            log[-1].unlink()  # the checkpoint with which the run ended
            with pytest.raises(StaleStoreError, match="in the store only its beginning"):
                run(job, spark)

    def test_the_newest_store_is_not_rebuilt(self, tmp_path: Path, spark: SparkSession) -> None:
        with kafka_job(tmp_path, {"a": 1}) as job:
            job.produce(5)
            run(job, spark)
            code, report, _ = command("store rebuild", job.path)
            assert (code, report["error"]["id"]) == (3, "NOTHING_TO_REBUILD")

    def test_half_published_sequence_is_set_aside_and_read_again(self, tmp_path: Path, spark: SparkSession) -> None:
        """The store is lost right after a kill in mid-commit: only the published files show which files are missing."""
        with kafka_job(tmp_path, {"a": 1, "b": 1}, source={"records_per_work_unit": 5}) as job:
            job.produce(10)
            run(job, spark)
            job.produce(20)
            run(job, spark)
            (clean,) = (tmp_path / "output" / ".distcommit").glob("*-clean")
            clean.rename(clean.with_name(clean.name.replace("clean", "ended")))  # as if sequences had been left open
            newest = sorted((tmp_path / "output" / "a").rglob("*.parquet"))[-4:]
            newest[0].unlink()  # it was never published
            shutil.rmtree(tmp_path / "store")
            code, report, _ = command("store rebuild", job.path)
            assert (code, report["written"], report["set_aside_count"]) == (0, True, 3)
            assert {Path(path).name for path in report["set_aside"]} == {path.name for path in newest[1:]}
            assert {row["dataset"]: row["positions_after"] for row in report["rows"]} == {
                "a": {"0": 10},
                "b": {"0": 30},
            }
            assert len(files(tmp_path / "store" / "set_aside")) == 3
            run(job, spark)
            job.assert_exact()

    def test_gap_in_a_complete_sequence_is_a_problem_until_an_operator_accepts_it(
        self, tmp_path: Path, spark: SparkSession
    ) -> None:
        with kafka_job(tmp_path, {"a": 1}, source={"records_per_work_unit": 5}) as job:
            job.produce(10)
            run(job, spark)
            job.produce(10)
            run(job, spark)
            sorted((tmp_path / "output" / "a").rglob("*.parquet"))[-2].unlink()
            shutil.rmtree(tmp_path / "store")
            code, report, _ = command("store rebuild", job.path)
            assert (code, report["written"], report["problems_count"]) == (5, False, 1)
            assert "a partition 0: no file has offsets" in report["problems"][0]
            assert not (tmp_path / "store").exists()
            code, report, _ = command("store rebuild", job.path, "--accept-gaps")
            assert (code, report["written"], report["rows"][0]["records_in_gaps"]) == (0, True, 5)
            audit = job.audit()
            assert (audit.exact, audit.skipped, audit.records) == (True, 5, 15)

    def test_damaged_file_is_named_and_nothing_is_written(self, tmp_path: Path, spark: SparkSession) -> None:
        with kafka_job(tmp_path, {"a": 1}) as job:
            job.produce(5)
            run(job, spark)
            (file,) = (tmp_path / "output" / "a").rglob("*.parquet")
            file.write_bytes(b"PAR1")
            shutil.rmtree(tmp_path / "store")
            code, report, _ = command("store rebuild", job.path)
            assert (code, report["written"]) == (5, False)
            assert file.name in report["problems"][0]


class TestTwoJobs:
    def test_two_jobs_cannot_share_an_output(self, tmp_path: Path, spark: SparkSession) -> None:
        with kafka_job(tmp_path, {"a": 1}) as job:
            job.produce(5)
            run(job, spark)
            published = files(tmp_path / "output")
            job.write(job="other", paths={"store": "other-store", "staging": "other-staging"})
            with pytest.raises(ConfigurationError, match="belongs to another job"):
                run(job, spark)
            assert files(tmp_path / "output") == published

    def test_two_jobs_cannot_share_their_staging(self, tmp_path: Path, spark: SparkSession) -> None:
        with kafka_job(tmp_path, {"a": 1}) as job:
            run(job, spark)
            job.write(job="other", paths={"store": "other-store", "output": "other-output"})
            with pytest.raises(ConfigurationError, match=r"belongs to another job.*staging"):
                run(job, spark)

    def test_topic_in_two_jobs_with_separate_folders_is_harmless(self, tmp_path: Path, spark: SparkSession) -> None:
        with kafka_job(tmp_path, {"a": 1}) as job:
            job.produce(5)
            run(job, spark)
            other = {name: f"other-{name}" for name in ("store", "staging", "output")}
            job.write(job="other", paths=other)
            run(job, spark)
            job.assert_exact()
            job.write(job="test", paths={name: name for name in other})
            job.assert_exact()


class TestMovingHere:
    def test_shadow_run_continues_at_a_consumer_group_s_offsets_and_is_compared(
        self, tmp_path: Path, spark: SparkSession
    ) -> None:
        with kafka_job(tmp_path, {"a": 2, "b": 1}) as job:
            job.produce(10)
            run(job, spark)
            commit(job, "old-system", {("a", 0): 4, ("a", 1): 10, ("b", 0): 0})
            shadow = tmp_path / "shadow.yaml"
            job.write(job="shadow", paths={name: f"shadow-{name}" for name in ("store", "staging", "output")})
            job.path.rename(shadow)
            job.write(job="test", paths={name: name for name in ("store", "staging", "output")})
            code, report, _ = command("migrate import-watermarks", shadow, "--kafka-group", "old-system", "--dry-run")
            assert (code, report["datasets_set"]) == (0, 2)
            assert not (tmp_path / "shadow-store").exists()
            code, report, _ = command("migrate import-watermarks", shadow, "--kafka-group", "old-system")
            assert {row["dataset"]: row["positions_after"] for row in report["rows"]} == {
                "a": {"0": 4, "1": 10},
                "b": {"0": 0},
            }
            run(job, spark, shadow)
            audit = Job.from_file(shadow).audit(deep=True)
            assert (audit.exact, audit.records) == (True, 6 + 0 + 10)
            code, report, _ = command("migrate compare", job.path, str(shadow))
            assert (code, report["is_equal"], sum(row["positions_in_both"] for row in report["rows"])) == (0, True, 16)
            code, report, _ = command("migrate compare", shadow, "--kafka-group", "old-system")
            assert code == 6
            assert [(row["position"], row["other_position"], row["ahead"]) for row in report["rows"]] == [
                (10, 4, 6),
                (10, 10, 0),
                (10, 0, 10),
            ]
            next((tmp_path / "shadow-output" / "b").rglob("*.parquet")).unlink()
            code, report, _ = command("migrate compare", job.path, str(shadow))
            assert (code, report["is_equal"], report["rows"][-1]["positions_only_here"]) == (6, False, 10)


def commit(job: KafkaJob, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": job.broker.bootstrap_servers, "group.id": group})
    named = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    consumer.commit(offsets=named, asynchronous=False)
    consumer.close()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
