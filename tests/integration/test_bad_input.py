"""Configuration mistakes and everyday failures: each is a clear error or documented behavior, and other datasets are
unharmed."""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import DistcommitError, Job
from distcommit.core.errors import (
    ConfigurationError,
    LockHeldError,
    ProcessLostError,
    SourceUnavailableError,
    UnknownVersionError,
)
from distcommit.engine.driver.run import RunResult
from distcommit.engine.driver.task_reports import Report
from distcommit.engine.run_settings import RunSettings
from distcommit.engine.system_clock import SystemClock
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.spark.java_check import check_java
from distcommit.spark.task_launch import SparkLaunch
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from tests.integration import large_source
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.registered_records import avro_records
from tests.servers.registry import RegistryServer
from tests.simulation.damage import of_version


def run(job: KafkaJob, spark: SparkSession) -> RunResult:
    return Job.from_file(job.path, session=spark).run()


def reasons(result: RunResult) -> dict[str, str]:
    return {reason.subject: reason.text for reason in result.reasons.entries}


@dataclass(frozen=True)
class FewSettings:
    """What a launch needs of a run's settings."""

    run_id: str = "run"
    epoch: int = 1
    alone: str = ""
    after_death: bool = False
    store: JobStore | None = None


def die(settings: RunSettings, task: int) -> Report:
    if task:
        os.kill(os.getpid(), signal.SIGKILL)
    return Report()


def test_dead_worker_is_reported_as_the_cause(spark: SparkSession, tmp_path: Path) -> None:
    roots = Roots(*(str(tmp_path / name) for name in ("store", "staging", "output")))
    settings: Any = FewSettings(store=open_store(LocalFileSystem(), roots, "job", create=True))
    with pytest.raises(ProcessLostError, match=r"task 1 of stage [\d.]+ on \S+ failed \d times: a Python worker died"):
        SparkLaunch(spark)(die, settings, 2, Report)


def test_a_misspelt_key_suggests_the_right_one(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"a": 1}, comit={"buckets": 2}) as job:
        code, _, errors = job.cli("run")
    assert code == 2
    assert "comit is not a setting; did you mean 'commit'?" in errors
    assert "Traceback" not in errors


def test_a_misspelt_key_in_a_section_is_named_with_its_section(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"a": 1}, source={"topcs": ["a"]}) as job, pytest.raises(ConfigurationError) as caught:
        Job.from_file(job.path)
    assert "source.topcs is not a setting of type kafka; did you mean 'topics'" in str(caught.value)


def test_missing_topic_is_reported_and_other_topics_are_published(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        job.write(source={"topics": ["a", "nowhere"]})
        job.produce(5)
        result = run(job, spark)
        assert not result.succeeded
        assert "nowhere" in reasons(result)
        job.assert_exact()


def test_an_unreachable_broker_is_one_clear_error(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        job.write(source={"brokers": "127.0.0.1:9", "request_timeout_s": 2})
        with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9"):
            run(job, spark)
        assert SourceUnavailableError.exit_code == 4


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").exists(), reason="needs a folder that can't be written")
def test_folder_that_cannot_be_created_is_named(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "file").write_text("not a folder")
    with (
        kafka_job(tmp_path, {"a": 1}, paths={"output": "file/output"}) as job,
        pytest.raises(DistcommitError) as caught,
    ):
        run(job, spark)
    assert "file/output" in str(caught.value)


def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        job.produce(3)
        assert run(job, spark).succeeded
        marker = tmp_path / "store" / "store.json"
        newer = of_version(marker.read_bytes(), 2)
        marker.write_bytes(newer)
        with pytest.raises(UnknownVersionError, match="unknown format version"):
            run(job, spark)
        assert marker.read_bytes() == newer


def test_store_with_another_number_of_buckets_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        job.produce(3)
        assert run(job, spark).succeeded
        job.write(commit={"buckets": 9})
        with pytest.raises(ConfigurationError, match="another number of buckets"):
            run(job, spark)


def test_two_jobs_can_not_share_a_store(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        assert run(job, spark).succeeded
        job.write(job="other")
        with pytest.raises(ConfigurationError, match="belongs to another job"):
            run(job, spark)


NUMBERS = [{"type": "json", "fields": {"n": "int64"}}]


def produce_json(job: KafkaJob, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    job.produced += len(values)


@pytest.mark.parametrize("policy", ["fail", "divert"])
def test_record_that_cannot_be_decoded_fails_its_dataset_or_is_rejected(
    tmp_path: Path, spark: SparkSession, policy: str
) -> None:
    with kafka_job(tmp_path, {"good": 1, "bad": 1}, converters=NUMBERS, on_rejected=policy) as job:
        produce_json(job, "good", b'{"n":1}', b'{"n":2}')
        produce_json(job, "bad", b'{"n":1}', b'{"n":"two"}', b"not json", None)
        result = run(job, spark)
        audit = job.audit()
    if policy == "fail":
        assert not result.succeeded
        assert "a record is rejected" in reasons(result)["bad"]
        assert (audit.records, audit.datasets) == (2, 2), "the other dataset is unharmed, and this one known"
    else:
        assert result.succeeded
        assert (result.totals.records_rejected, audit.rejected, audit.records, audit.exact) == (2, 2, 4, True)
        assert len(list((tmp_path / "output" / "_rejected" / "bad").rglob("*.parquet"))) == 1


@pytest.mark.slow
def test_staged_files_of_a_failed_dataset_are_not_an_audit_finding(tmp_path: Path, spark: SparkSession) -> None:
    source = {"records_per_work_unit": 5}
    with kafka_job(tmp_path, {"good": 1, "bad": 1}, converters=NUMBERS, source=source) as job:
        produce_json(job, "good", b'{"n":1}', b'{"n":2}')
        produce_json(job, "bad", *[b'{"n":1}'] * 10, b"not json")
        code, result, _ = job.cli("run")
        assert (code, result["totals"]["datasets_failed"]) == (1, 1)
        staged = sum(1 for path in (tmp_path / "staging").glob("*/bucket=*/*") if path.is_dir())
        code, audit, _ = job.cli("audit", "--deep")
        assert (code, audit["exact"], audit["records"], audit["orphaned_files_count"]) == (0, True, 2, 0)
        assert audit["sweepable_files_count"] == staged > 0
        assert Job.from_file(job.path, session=spark).recover().succeeded
        assert list((tmp_path / "staging").glob("*/bucket=*/*")) == []
        after = job.audit()
        assert (after.exact, after.sweepable_files_count) == (True, 0)


def test_an_empty_topic_gets_its_watermark_and_no_file(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"empty": 2}, source={"start": "latest"}) as job:
        assert run(job, spark).succeeded
        assert [row.positions for row in Job.from_file(job.path).status().datasets] == [{"0": 0, "1": 0}]
        job.produce(4)
        assert run(job, spark).succeeded
        job.assert_exact()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_expired_offset_stops_its_dataset_or_is_counted_as_lost(
    tmp_path: Path, spark: SparkSession, policy: str
) -> None:
    """The mock broker keeps 5 MB of a partition, so that retention really passes the watermark."""
    with kafka_job(tmp_path, {"big": 1, "small": 1}, source={"expired_offsets": policy}) as job:
        job.produce(2)
        assert run(job, spark).succeeded
        produce_json(job, "big", *[os.urandom(500_000) for _ in range(16)])
        produce_json(job, "small", b"1")
        result = run(job, spark)
        audit = job.audit()
    small = next(row for row in audit.partitions if row.dataset == "small")
    big = next(row for row in audit.partitions if row.dataset == "big")
    assert small.watermark == 3
    if policy == "fail":
        assert not result.succeeded
        assert "expired" in reasons(result)["big"] or "retention" in reasons(result)["big"], reasons(result)
        assert big.watermark == 2, "the watermark stays"
    else:
        assert result.succeeded
        assert audit.exact
        assert big.skipped == result.totals.positions_lost > 0, "lost records are counted"
        assert big.published + big.skipped == big.watermark == 18


@pytest.mark.slow
def test_limits_keep_a_backlog_from_starving_other_datasets(tmp_path: Path, spark: SparkSession) -> None:
    """A run reads at most the limit of records or seconds of each dataset; later runs read the rest, exactly once."""
    with kafka_job(tmp_path, {"backlog": 2, "small": 1}, source={"records_per_dataset": 50}) as job:
        job.topics = {"backlog": 2}
        job.produce(90)
        job.topics = {"small": 1}
        job.produce(3)
        published = [run(job, spark).totals.records_published for _ in range(4)]
        assert published == [53, 50, 50, 30]
        job.assert_exact()
        job.topics = {"backlog": 2}
        job.produce(5)
        job.write(limits={"seconds": 0.000001})
        late = run(job, spark)
        assert (late.succeeded, late.totals.records_published) == (True, 0)
        job.write(limits={"seconds": 600})
        assert run(job, spark).totals.records_published == 10
        job.assert_exact()


@pytest.mark.slow
@pytest.mark.parametrize("start", ["earliest", "latest", "2023-11-16T00:00:00Z"])
def test_start_setting_selects_the_first_offset(tmp_path: Path, spark: SparkSession, start: str) -> None:
    """The mock broker has no offsets by time: a time then means the end, as on a broker without newer records."""
    with kafka_job(tmp_path, {"a": 1}, source={"start": start}) as job:
        job.produce(6)
        first = run(job, spark).totals.records_published
        job.produce(4)
        second = run(job, spark).totals.records_published
        assert (first, second) == ((6, 4) if start == "earliest" else (0, 4))
        assert job.audit().exact


def test_partitions_are_published_as_datasets_in_avro(tmp_path: Path, spark: SparkSession) -> None:
    sink = {"format": "avro", "partition_by": {"granularity": "hour", "time_zone": "America/New_York"}}
    with kafka_job(tmp_path, {"a": 3}, source={"dataset": "partition"}, sink=sink) as job:
        job.produce(5, days=2)
        result = run(job, spark)
        assert (result.succeeded, result.totals.datasets_published) == (True, 3)
        folders = {str(path.parent.relative_to(tmp_path / "output")) for path in tmp_path.rglob("output/**/*.avro")}
        assert "a@1/2023-11-14-17" in folders
        job.assert_exact()


def test_dataset_names_with_any_characters_are_published(tmp_path: Path, spark: SparkSession) -> None:
    names = ["a/b", "..", "../up", "with space", "a:b", "ünïcødé", ".hidden", "_under", "x" * 300, "per%cent"]
    options = {"names": names}
    (tmp_path / "job.yaml").write_text(
        f"""
job: names
source: {{type: python, class: "tests.integration.named_source:NamedSource", options: {options}}}
paths: {{store: store, staging: staging, output: output}}
"""
    )
    job = Job.from_file(tmp_path / "job.yaml", session=spark)
    result = job.run()
    assert result.succeeded, result.reasons.entries
    audit = job.audit(deep=True)
    assert (audit.exact, audit.datasets, audit.records) == (True, len(names), 3 * len(names))
    folders = [path.name for path in (tmp_path / "output").iterdir() if path.name != OWNERSHIP_FOLDER]
    assert len(folders) == len(names)
    assert not any(name.startswith((".", "_")) for name in folders)
    assert {path.name for path in tmp_path.iterdir()} == {"job.yaml", "store", "staging", "output"}


def test_second_run_of_a_live_job_is_refused_and_names_the_lock_holder(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1}) as job:
        assert run(job, spark).succeeded
        store = Job.from_file(job.path).open_store(create=False)
        with JobLock(store.fs, store.roots.store, "the-other-run", 30, SystemClock()):
            with pytest.raises(LockHeldError) as caught:
                run(job, spark)
            assert "the-other-run" in str(caught.value)
            assert str(os.getpid()) in str(caught.value)
        assert run(job, spark).succeeded


@pytest.mark.parametrize("version", ["11.0.20", "1.8.0_392", None])
def test_missing_or_old_java_is_a_one_line_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if version:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2023-07-18' >&2\n")
        java.chmod(0o755)
    with pytest.raises(ConfigurationError) as caught:
        check_java()
    assert "Java 17 or later" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert version is None or version in str(caught.value)


def test_lost_bucket_log_stops_only_its_datasets(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {f"t{n}": 1 for n in range(20)}) as job:
        job.produce(2)
        assert run(job, spark).succeeded
        shutil.rmtree(tmp_path / "store" / "log" / "bucket=00003")
        job.produce(2)
        result = run(job, spark)
        assert not result.succeeded
        assert any("bucket 3" in subject for subject in reasons(result))
        assert 0 < result.totals.datasets_published < 20
        assert job.audit().gaps == job.audit().duplicates == 0


ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def by_key(port: int) -> dict[str, Any]:
    """Return a fork that routes keyed records to Avro by the registry at that port, and all others unchanged."""
    registry = {"url": f"http://127.0.0.1:{port}/apis/ccompat/v7", "client": {"max.retries": 0, "timeout": 10}}
    return {
        "type": "first_match",
        "when": {"plain": {"column": "key", "op": "is_null"}},
        "unmatched": "typed",
        "branches": {
            "plain": {"sink": {"partition_by": None}},
            "typed": {"converters": [{"type": "avro", "registry": registry}], "sink": {"partition_by": None}},
        },
    }


@pytest.mark.slow
def test_registry_outage_fails_only_datasets_that_need_it(
    tmp_path: Path, spark: SparkSession, registry_server: RegistryServer
) -> None:
    """Its work units are retried and then fail; datasets that need no registry are published."""
    orders, server = f"orders-{uuid.uuid4().hex[:8]}", urlsplit(registry_server.url).port or 0
    records = avro_records(registry_server.url, orders, ORDER, [{"id": n} for n in range(6)])
    task = {"attempts": 2, "retry_wait_s": 0.1}

    def send(*values: bytes) -> None:
        producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
        for body in values:
            producer.produce(orders, body, key=b"k", partition=0)
            producer.produce("notes", b"a note", partition=0)
        assert producer.flush(30) == 0
        job.produced += 2 * len(values)

    def positions() -> dict[str, Any]:
        return {row.dataset: row.positions["0"] for row in Job.from_file(job.path).status().datasets}

    with kafka_job(tmp_path, {orders: 1, "notes": 1}, sink=None, task=task) as job:
        with LossyProxy(server) as proxy:
            port = proxy.port
            job.write(fork=by_key(port))
            send(*records[:2])
            assert run(job, spark).succeeded
            job.assert_exact()
        send(*records[2:])
        down = run(job, spark)
        assert not down.succeeded
        assert list(reasons(down)) == [orders]
        assert "the schema registry does not answer" in reasons(down)[orders]
        assert f"127.0.0.1:{port}" in reasons(down)[orders]
        assert positions() == {orders: 2, "notes": 6}, "one watermark stays, the other dataset continues"
        assert (job.audit().exact, job.audit().records) == (True, 8)
        with LossyProxy(server, at=port) as proxy:
            proxy.lose_answer_to(rb"GET /apis/ccompat/v7/schemas/ids/")
            assert run(job, spark).succeeded, "it was away for the first attempt alone, and the second one waited"
            assert proxy.wait_for_loss(0)
        assert positions() == {orders: 6, "notes": 6}
        job.assert_exact()
    files = list((tmp_path / "output" / orders / "typed").rglob("*.parquet"))
    assert sorted(n for path in files for n in pq.read_table(path)["id"].to_pylist()) == list(range(6))


LARGE = 60


def large_values(folder: Path, column: str) -> Iterator[tuple[int, Any, str]]:
    """Return offset, column content and rejection reason of each record in the Parquet files below the folder."""
    for path in folder.rglob("*.parquet"):
        for batch in pq.ParquetFile(path).iter_batches(batch_size=1):
            (row,) = batch.to_pylist()
            yield row["offset"], row[column], row.get("error_reason", "")


@pytest.mark.slow
def test_ten_megabyte_records_are_published_or_rejected_in_bounded_memory(tmp_path: Path, spark: SparkSession) -> None:
    job_file, peak = tmp_path / "job.yaml", tmp_path / "peak"
    options = {"records": LARGE, "peak": str(peak)}
    tree = {
        "job": "large",
        "source": {"type": "python", "class": "tests.integration.large_source:LargeSource", "options": options},
        "on_rejected": "divert",
        "converters": [{"type": "json", "keep_column": False, "fields": {"n": "int64", "text": "string"}}],
        "row_checkers": [{"type": "range", "column": "n", "min": 0}],
        "paths": {name: name for name in ("store", "staging", "output")},
    }
    job_file.write_text(yaml.safe_dump(tree))
    job = Job.from_file(job_file, session=spark)
    result = job.run()
    assert result.succeeded, result.reasons.entries
    audit = job.audit()
    assert (audit.exact, audit.records, audit.rejected) == (True, LARGE - LARGE // 3 * 2, LARGE // 3 * 2)
    published = {
        offset: value == large_source.text(offset)
        for offset, value, _ in large_values(tmp_path / "output/large", "text")
    }
    assert published == dict.fromkeys(range(0, LARGE, 3), True)
    rejected = [*large_values(tmp_path / "output/_rejected/large", "value")]
    assert {offset: value == large_source.value(offset) for offset, value, _ in rejected} == {
        offset: True for offset in range(LARGE) if offset % 3
    }
    assert max(len(cause) for _, _, cause in rejected) <= 1000, "no reason holds the record"
    # Each of the two writers buffers a row group of 64 MB, and holds it twice while it writes it.
    assert int(peak.read_text()) < 45 * large_source.SIZE, f"bytes of memory, for {LARGE} records"
