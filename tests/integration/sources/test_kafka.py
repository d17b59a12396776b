"""Kafka's irregularities on a real broker: which records a job publishes, which it skips, and the result of the
audit."""

from __future__ import annotations

import re
import shlex
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from distcommit import Job
from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.auditing.audit import AuditResult
from distcommit.app.auditing.partition_audit import AuditRow
from distcommit.cli.main import app
from distcommit.engine.driver.run import RunResult
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_records
from tests.jobs.kafka_job import KafkaJob
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import wait_for_ended_transactions


class Topics:
    """Topics with names that no other test uses, and operations on them."""

    def __init__(self, server: KafkaServer) -> None:
        self.prefix = f"{uuid.uuid4().hex[:8]}."
        self.brokers = server.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.brokers})

    def make(self, name: str, **config: str) -> str:
        topic = NewTopic(self.prefix + name, 1, 1, config={k.replace("_", "."): v for k, v in config.items()})
        self.admin.create_topics([topic])[topic.topic].result(30)
        return topic.topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)
        while topic in self.admin.list_topics(timeout=10).topics:
            time.sleep(0.02)

    def forget(self, topic: str, before: int) -> None:
        """Delete records as retention does: the partition's log then starts at this offset."""
        partition = TopicPartition(topic, 0, before)
        self.admin.delete_records([partition])[partition].result(30)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        while len(self.admin.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
            time.sleep(0.02)

    def produce(self, topic: str, *values: bytes | None, partition: int = 0, settings: Any = None) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, **(settings or {})})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def transact(self, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, "transactional.id": topic})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0  # an aborted transaction also has its records in the log
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        assert wait_for_ended_transactions(self.brokers, [topic])

    def compacted(self, topic: str, below: int) -> None:
        """Wait until compaction has left fewer records than this."""
        settings = {"group.id": "look", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            consumer = Consumer({"bootstrap.servers": self.brokers, **settings})
            consumer.assign([TopicPartition(topic, 0, 0)])
            records = 0
            while (message := consumer.poll(10)) is not None and message.error() is None:
                records += 1
            consumer.close()
            if records < below:
                return
            time.sleep(0.2)
        pytest.fail(f"{topic} was not compacted")


@pytest.fixture
def topics(kafka_server: KafkaServer) -> Topics:
    return Topics(kafka_server)


def job_of(folder: Path, server: KafkaServer, *topics: str, **sections: Any) -> KafkaJob:
    folder.mkdir(exist_ok=True)
    job = KafkaJob(folder, server, dict.fromkeys(topics, 1))
    job.write(**sections)
    return job


def run(job: KafkaJob, spark: SparkSession) -> RunResult:
    return Job.from_file(job.path, session=spark).run()


def reasons(result: RunResult) -> dict[str, str]:
    return {reason.subject: reason.text for reason in result.reasons.entries}


@pytest.mark.slow
def test_job_switched_to_read_committed_waits_before_an_open_transaction(
    tmp_path: Path, kafka_server: KafkaServer, spark: SparkSession, topics: Topics
) -> None:
    """The records that it read from the transaction stay published once, and its position does not move back before
    it."""
    open_one, other = topics.make("open"), topics.make("other")
    topics.produce(open_one, b"0", b"1")
    writer = Producer({"bootstrap.servers": topics.brokers, "transactional.id": open_one})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(open_one, b"2", partition=0)
    assert writer.flush(30) == 0
    job = job_of(tmp_path, kafka_server, open_one, other, source={"client": {"isolation.level": "read_uncommitted"}})
    assert run(job, spark).totals.records_published == 3
    topics.produce(other, b"0")
    job.write(source={"client": {}})
    waits = run(job, spark)
    assert not waits.succeeded
    assert waits.totals.records_published == 1, "other topics continue"
    assert "an open transaction precedes the stored position" in reasons(waits)[open_one]
    status = CliRunner().invoke(app, ["status", str(job.path)])
    assert "set-watermark" not in status.output
    assert f"distcommit run {job.path}" in " ".join(status.output.split())
    writer.abort_transaction(30)
    assert wait_for_ended_transactions(topics.brokers, [open_one])
    topics.produce(open_one, b"3")
    last = run(job, spark)
    assert (last.succeeded, last.totals.records_published) == (True, 1)
    assert [row["value"] for row in published(job, open_one)] == [b"0", b"1", b"2", b"3"]
    assert job.audit().exact


def rows(audit: AuditResult, topic: str) -> list[AuditRow]:
    return [row for row in audit.partitions if row.dataset == topic]


def published(job: KafkaJob, topic: str) -> list[dict[str, Any]]:
    fs = LocalFileSystem()
    rows: list[dict[str, Any]] = []
    for path in (job.folder / "output" / topic).rglob("*.parquet"):
        table = read_records(fs, str(path))
        table = table.set_column(
            table.schema.get_field_index("kafka_timestamp"), "ms", table["kafka_timestamp"].cast(pa.int64())
        )
        rows += table.to_pylist()
    return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))


class Lived:
    """One job that has met all of these cases, in two runs."""

    def __init__(self, folder: Path, server: KafkaServer, spark: SparkSession) -> None:
        self.topics = topics = Topics(server)
        self.transacted, self.aborted = topics.make("transacted"), topics.make("aborted")
        self.compacted = topics.make("compacted", **COMPACTED)
        self.grown = topics.make("grown")
        self.odd = topics.make("odd", message_timestamp_after_max_ms=str(2**63 - 1), retention_ms="-1")
        self.appended = topics.make("appended", message_timestamp_type="LogAppendTime")
        self.large = topics.make("large", max_message_bytes="9000000")
        self.codecs = {codec: topics.make(codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")}
        every = [self.transacted, self.aborted, self.compacted, self.grown, self.odd, self.appended, self.large]
        self.job = job_of(folder, server, *every, *self.codecs.values(), sink={"compression": "none"})
        self._produce()
        self.first = run(self.job, spark)
        topics.transact(self.aborted, [b"never"], commit=False)
        topics.grow(self.grown, 3)
        topics.produce(self.grown, b"0", b"1", partition=2)
        self.second = run(self.job, spark)
        self.audit = self.job.audit()

    def _produce(self) -> None:
        topics = self.topics
        for number in range(2):
            topics.transact(self.transacted, [b"kept-%d" % number] * 3, commit=True)
            topics.transact(self.transacted, [b"never"] * 2, commit=False)
        topics.produce(self.aborted, b"kept")
        producer = Producer({"bootstrap.servers": topics.brokers})
        for number in range(40):
            producer.produce(self.compacted, str(number), key=f"{number % 2}", partition=0)
            if number % 10 == 9:
                assert producer.flush(30) == 0
                time.sleep(0.15)  # for another segment: the newest one is never compacted
        producer.produce(self.odd, None, key=None)
        producer.produce(self.odd, b"", key=b"", headers=[("a", b"1"), ("a", None), ("b", b"")])
        for stamp in TIMES:
            producer.produce(self.odd, b"odd", timestamp=stamp)
        producer.produce(self.appended, b"v", timestamp=1)
        assert producer.flush(30) == 0
        topics.produce(self.grown, b"0")
        topics.produce(self.large, b"x" * 8_000_000, b"small", settings={"message.max.bytes": 9_000_000})
        for codec, topic in self.codecs.items():
            settings = {"compression.codec": codec, "linger.ms": 50}
            topics.produce(topic, *[b"%d" % n * 100 for n in range(50)], settings=settings)
        topics.compacted(self.compacted, below=30)


COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "min_compaction_lag_ms": "0",
}
TIMES = (1, 1_700_000_000_000, 253_402_300_800_000, 9_223_372_036_854_775_807)
"""Milliseconds: 1970, 2023, the year 10000, and the year 292 million."""


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory, kafka_server: KafkaServer, spark: SparkSession) -> Lived:
    return Lived(tmp_path_factory.mktemp("lived"), kafka_server, spark)


def test_audit_of_all_irregularities_is_exact(lived: Lived) -> None:
    assert lived.first.succeeded, lived.first.reasons.entries
    assert lived.second.succeeded, lived.second.reasons.entries
    assert lived.audit.exact, lived.audit
    assert (lived.audit.gaps, lived.audit.skipped) == (0, 0)
    assert lived.audit.holes == sum(row.holes for row in lived.audit.partitions) > 0


def test_aborted_records_and_control_records_are_holes(lived: Lived) -> None:
    """3 records and the end of their transaction, 2 that were aborted and the end of theirs, twice."""
    (row,) = rows(lived.audit, lived.transacted)
    assert (row.watermark, row.published, row.holes) == (14, 6, 8)
    assert [record["value"] for record in published(lived.job, lived.transacted)] == [b"kept-0"] * 3 + [b"kept-1"] * 3


def test_run_over_nothing_but_holes_publishes_no_file(lived: Lived) -> None:
    (row,) = rows(lived.audit, lived.aborted)
    assert (row.watermark, row.published, row.holes) == (3, 1, 2)
    assert len(list((lived.job.folder / "output" / lived.aborted).rglob("*.parquet"))) == 1


def test_compacted_offsets_are_holes(lived: Lived) -> None:
    (row,) = rows(lived.audit, lived.compacted)
    assert row.watermark == 40
    assert row.holes > 10
    assert row.published == 40 - row.holes
    assert published(lived.job, lived.compacted)[-1]["value"] == b"39"


def test_partition_added_between_runs_is_read_from_its_beginning(lived: Lived) -> None:
    places = [(row["kafka_partition"], row["kafka_offset"]) for row in published(lived.job, lived.grown)]
    assert places == [(0, 0), (2, 0), (2, 1)]
    (state,) = [row for row in Job.from_file(lived.job.path).status().datasets if row.dataset == lived.grown]
    assert state.positions == {"0": 1, "1": 0, "2": 2}


@pytest.mark.parametrize("dataset", ["topic", "partition"])
def test_partition_added_in_mid_life_is_read_from_its_beginning_in_spite_of_start_latest(
    tmp_path: Path, kafka_server: KafkaServer, topics: Topics, spark: SparkSession, dataset: str
) -> None:
    """`start: latest` skips the records of the very first planning of the topic, and none that come later."""
    topic, late = topics.make("followed"), topics.make("late")
    job = job_of(tmp_path, kafka_server, topic, source={"start": "latest", "dataset": dataset})
    topics.produce(topic, b"before us")
    assert run(job, spark).totals.records_published == 0
    topics.produce(topic, b"1")
    topics.grow(topic, 3)
    topics.produce(topic, b"0", b"1", b"2", partition=1)
    topics.produce(topic, b"0", b"1", b"2", partition=2)
    topics.produce(late, b"before us")
    job.write(source={"start": "latest", "dataset": dataset, "topics": [topic, late]})
    assert run(job, spark).totals.records_published == 1 + 3 + 3
    audit = job.audit()
    assert (audit.exact, audit.skipped) == (True, 0), audit
    firsts = {(row.dataset.partition("@")[0], row.partition): row.first for row in audit.partitions}
    assert firsts == {(topic, "0"): 1, (topic, "1"): 0, (topic, "2"): 0, (late, "0"): 1}


def test_topics_become_partitions_by_the_printed_command_with_their_incarnations(
    tmp_path: Path, kafka_server: KafkaServer, topics: Topics, spark: SparkSession
) -> None:
    again = topics.make("again")
    topics.grow(again, 2)
    job = job_of(tmp_path, kafka_server, again, source={"start": "latest"})
    assert run(job, spark).succeeded
    topics.produce(again, b"0", b"1")
    topics.produce(again, b"0", partition=1)
    assert run(job, spark).totals.records_published == 3
    topics.produce(again, b"2")
    refused = CliRunner().invoke(app, ["run", str(job.path), "--set", "source.dataset=partition"])
    assert refused.exit_code == 2
    (command,) = re.findall("`distcommit (migrate import-watermarks [^`]+)`", " ".join(refused.stderr.split()))
    words = shlex.split(command)
    assert CliRunner().invoke(app, words).exit_code == 0
    before = incarnations(job)
    job.write(source={"dataset": "partition"}, paths={n: f"{n}-2" for n in ("store", "staging", "output")})
    assert incarnations(job) == {f"{again}@0": before[again], f"{again}@1": before[again]}
    assert before[again]
    result = run(job, spark)
    assert (result.succeeded, result.totals.records_published) == (True, 1)
    second = job.audit()
    job.write(source={"dataset": "topic"}, paths={n: n for n in ("store", "staging", "output")})
    first = job.audit()
    assert (first.exact, second.exact, first.records, second.records) == (True, True, 3, 1)
    ends = {row.partition: row.watermark for row in first.partitions}
    assert {row.partition: row.first for row in second.partitions} == ends, "it continues at the other's end"


def incarnations(job: KafkaJob) -> dict[str, str]:
    states = stored_states(Job.from_file(job.path).open_store(create=False))
    return {urn: state.watermark.incarnation for urn, state in states.items() if state.watermark is not None}


def test_null_and_empty_keys_values_and_headers_stay_distinct(lived: Lived) -> None:
    null, empty, *_ = published(lived.job, lived.odd)
    assert (null["key"], null["value"], null["headers"]) == (None, None, None)
    assert (empty["key"], empty["value"]) == (b"", b"")
    headers = [(header["key"], header["value"]) for header in empty["headers"]]
    assert headers == [("a", b"1"), ("a", None), ("b", b"")]


def test_absurd_times_are_kept_and_have_a_folder_of_their_own(lived: Lived) -> None:
    assert tuple(record["ms"] for record in published(lived.job, lived.odd)[2:]) == TIMES
    folders = {path.name for path in (lived.job.folder / "output" / lived.odd).iterdir()}
    assert {"1970-01-01", "2023-11-14", "time=unknown"} <= folders


def test_type_of_a_timestamp_is_published(lived: Lived) -> None:
    (appended,) = published(lived.job, lived.appended)
    assert appended["kafka_timestamp_type"] == "append"
    assert appended["ms"] > 1_700_000_000_000
    assert {record["kafka_timestamp_type"] for record in published(lived.job, lived.odd)} == {"create"}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_codec_is_read(lived: Lived, codec: str) -> None:
    values = [record["value"] for record in published(lived.job, lived.codecs[codec])]
    assert values == [b"%d" % n * 100 for n in range(50)]


def test_large_messages_are_read(lived: Lived) -> None:
    assert [len(record["value"]) for record in published(lived.job, lived.large)] == [8_000_000, 5]


def test_recreated_topic_is_refused_until_an_operator_sets_its_watermark(
    tmp_path: Path, kafka_server: KafkaServer, topics: Topics, spark: SparkSession
) -> None:
    again, other = topics.make("again"), topics.make("other")
    job = job_of(tmp_path, kafka_server, again, other)
    topics.produce(again, b"old-0", b"old-1")
    topics.produce(other, b"0")
    assert run(job, spark).succeeded
    topics.delete(again)
    topics.make("again")
    topics.produce(again, b"new-0", b"new-1", b"new-2")
    topics.produce(other, b"1")
    refused = run(job, spark)
    assert not refused.succeeded
    assert "recreated" in reasons(refused)[again]
    assert "topic id" in reasons(refused)[again]
    assert refused.totals.records_published == 1, "the other topic continues"
    assert [record["value"] for record in published(job, again)] == [b"old-0", b"old-1"]
    Job.from_file(job.path).set_watermark(again, None)
    assert run(job, spark).succeeded
    values = [record["value"] for record in published(job, again)]
    assert sorted(values) == [b"new-0", b"new-1", b"new-2", b"old-0", b"old-1"]
    audit = job.audit()
    assert audit.exact, audit
    assert (audit.earlier_incarnations, audit.records) == (1, 7)


def test_rebuilt_store_restores_topic_ids_and_offsets_without_records(
    tmp_path: Path, kafka_server: KafkaServer, topics: Topics, spark: SparkSession
) -> None:
    """One topic is recreated, and another has aborted transactions.

    The store is lost, and lost again after the topic was recreated between runs.
    """
    again, holed = topics.make("again"), topics.make("holed")
    job = job_of(tmp_path, kafka_server, again, holed)
    topics.produce(again, *[b"old"] * 4)
    topics.transact(holed, [b"kept"] * 3, commit=True)
    topics.transact(holed, [b"never"] * 2, commit=False)
    topics.transact(holed, [b"kept"], commit=True)
    assert run(job, spark).succeeded
    topics.delete(again)
    topics.make("again")
    topics.produce(again, *[b"new"] * 2)
    topics.transact(holed, [b"kept"], commit=True)
    Job.from_file(job.path).set_watermark(again, None)
    assert run(job, spark).succeeded
    before = {row.dataset: (row.positions, row.incarnation) for row in Job.from_file(job.path).status().datasets}
    assert before[again][0] == {"0": 2}
    shutil.rmtree(tmp_path / "store")
    code, rebuilt, errors = job.cli("store rebuild")
    assert (code, rebuilt["written"], rebuilt["gaps"], rebuilt["set_aside_count"]) == (0, True, [], 0), errors
    after = {row.dataset: (row.positions, row.incarnation) for row in Job.from_file(job.path).status().datasets}
    assert after[again] == before[again]
    assert after[holed][1] == before[holed][1] != ""
    topics.produce(again, *[b"new"] * 3)
    topics.transact(holed, [b"kept"], commit=True)
    assert run(job, spark).totals.records_published == 4
    code, audit, _ = job.cli("audit", "--deep")
    assert (code, audit["exact"], audit["records"], audit["gaps"], audit["skipped"]) == (0, True, 4 + 5 + 6, 0, 0)
    assert audit["holes"] > 0
    topics.delete(again)
    topics.make("again")
    topics.produce(again, *[b"newest"] * 9)
    shutil.rmtree(tmp_path / "store")
    assert job.cli("store rebuild")[0] == 0
    refused = run(job, spark)
    assert (refused.succeeded, refused.totals.records_published) == (False, 0)
    assert "recreated" in reasons(refused)[again]
    Job.from_file(job.path).set_watermark(again, None)
    assert run(job, spark).totals.records_published == 9
    assert job.audit().exact


POLICIES = ("fail", "skip", "earliest", "latest", "nearest")


def test_retention_past_the_watermark_stops_the_dataset(
    tmp_path: Path, kafka_server: KafkaServer, topics: Topics, spark: SparkSession
) -> None:
    """Ten records are read, ten more arrive, and Kafka deletes the first 15."""
    topic = topics.make("expired")
    topics.grow(topic, 2)
    jobs = {
        policy: job_of(tmp_path / policy, kafka_server, topic, source={"expired_offsets": policy})
        for policy in POLICIES
    }
    topics.produce(topic, *[b"%d" % n for n in range(10)])
    for job in jobs.values():
        assert run(job, spark).succeeded
    topics.produce(topic, *[b"%d" % n for n in range(10, 20)])
    topics.produce(topic, b"in the other partition", partition=1)
    topics.forget(topic, 15)
    expected = {  # watermarks, published in this run, lost
        "fail": ({"0": 10, "1": 0}, 0, 0),
        "skip": ({"0": 10, "1": 1}, 1, 0),
        "earliest": ({"0": 20, "1": 1}, 6, 5),
        "latest": ({"0": 20, "1": 1}, 1, 10),
        "nearest": ({"0": 20, "1": 1}, 6, 5),
    }
    for policy, (positions, records, lost) in expected.items():
        result, job = run(jobs[policy], spark), jobs[policy]
        (state,) = Job.from_file(job.path).status().datasets
        audit = job.audit()
        assert (state.positions, result.totals.records_published) == (positions, records), policy
        assert (result.totals.positions_lost, state.positions_lost, audit.skipped) == (lost, lost, lost), policy
        assert (audit.exact, audit.gaps, audit.holes) == (True, 0, 0)
        assert result.succeeded == (policy not in ("fail", "skip"))
        if not result.succeeded:
            assert "deleted records before they were read" in reasons(result)[topic]
            assert "5 offsets have expired" in reasons(result)[topic]


def test_watermark_past_the_end_stays_until_an_operator_sets_it(
    tmp_path: Path, kafka_server: KafkaServer, topics: Topics, spark: SparkSession
) -> None:
    """The watermark may have been imported, or Kafka lost its end; the reason states the watermark to set."""
    topic, other = topics.make("past"), topics.make("other")
    job = job_of(tmp_path, kafka_server, topic, other, source={"expired_offsets": "nearest"})
    (tmp_path / "positions.csv").write_text(f"dataset,partition,next_offset\n{topic},0,12\n")
    Job.from_file(job.path).import_watermarks(tmp_path / "positions.csv")
    topics.produce(topic, b"before-0", b"before-1")
    topics.produce(other, b"0")
    refused = run(job, spark)
    assert (refused.succeeded, refused.totals.records_published) == (False, 1), "the other topic continues"
    assert """to {"0": 2} to continue at the nearest offsets""" in reasons(refused)[topic]
    (state,) = [row for row in Job.from_file(job.path).status().datasets if row.dataset == topic]
    assert state.positions == {"0": 12}
    Job.from_file(job.path).set_watermark(topic, {"0": 2})
    topics.produce(topic, b"2")
    assert run(job, spark).succeeded
    assert [record["value"] for record in published(job, topic)] == [b"2"]
    assert job.audit().exact


def test_a_message_larger_than_the_fetch_limit_stops_its_topic_alone(
    tmp_path: Path, kafka_server: KafkaServer, topics: Topics, spark: SparkSession
) -> None:
    large, small = topics.make("too-large"), topics.make("small")
    limits = {"message.max.bytes": 50_000, "fetch.max.bytes": 50_000, "receive.message.max.bytes": 60_000}
    source = {"client": limits, "idle_timeout_s": 3}
    job = job_of(tmp_path, kafka_server, large, small, source=source, task={"attempts": 1})
    topics.produce(large, b"x" * 500_000)
    topics.produce(small, b"0", b"1")
    refused = run(job, spark)
    assert (refused.succeeded, refused.totals.records_published) == (False, 2), "the other topic continues"
    assert "larger than the client settings allow" in reasons(refused)[large]
    assert "raise receive.message.max.bytes in source.client" in reasons(refused)[large]
    job = job_of(tmp_path, kafka_server, large, small)
    assert run(job, spark).totals.records_published == 1
    assert job.audit().exact


def test_topic_in_two_jobs_is_read_independently_by_each(
    tmp_path: Path, kafka_server: KafkaServer, topics: Topics, spark: SparkSession
) -> None:
    topic = topics.make("shared")
    first = job_of(tmp_path / "first", kafka_server, topic)
    second = job_of(tmp_path / "second", kafka_server, topic, job="second")
    topics.produce(topic, b"0", b"1")
    assert run(first, spark).totals.records_published == 2
    topics.produce(topic, b"2")
    assert run(second, spark).totals.records_published == 3
    assert run(first, spark).totals.records_published == 1
    assert first.audit().exact
    assert second.audit().exact
