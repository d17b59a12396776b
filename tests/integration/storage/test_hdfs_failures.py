"""HDFS failures through the command line: each is a clear error or documented behavior, and nothing is lost."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.servers.hdfs import HdfsServer

TOPICS = {"a": 1, "b": 1, "c": 1}


@contextmanager
def job_on(folder: Path, authority: str, **sections: Any) -> Iterator[KafkaJob]:
    """Write a job of two tasks whose folders are on HDFS."""
    place = f"hdfs://{authority}/jobs/{uuid.uuid4().hex}"
    paths = {name: f"{place}/{name}" for name in ("store", "staging", "output")}
    with kafka_job(folder, TOPICS, paths=paths, spark={"partitions": 2}, **sections) as job:
        job.produce(2)
        yield job


def error_of(job: KafkaJob, *, code: int) -> str:
    """Return the error line that ends the run's output."""
    result, _, errors = job.cli("run")
    assert result == code, errors[-3000:]
    assert "Traceback" not in errors
    return errors[errors.rindex("error: ") :]


def test_missing_write_permission_is_a_clear_error(
    tmp_path: Path, hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    with job_on(tmp_path, hdfs_server.authority) as job:
        error = error_of(job, code=2)
    assert "user=stranger, access=WRITE" in error
    assert "their permissions" in error


def test_unknown_name_service_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with job_on(tmp_path, "nobody") as job:
        error = error_of(job, code=2)
    assert "[authority=nobody" in error
    assert "HADOOP_CONF_DIR" in error


def test_unknown_url_scheme_is_refused_with_the_known_schemes(tmp_path: Path) -> None:
    with kafka_job(tmp_path, TOPICS) as job:
        job.write(paths={name: f"tape://host/{name}" for name in ("store", "staging", "output")})
        error = error_of(job, code=2)
    assert "scheme=tape" in error
    assert "hdfs://, webhdfs://, s3://, az://, abfss:// or gs://" in error


@pytest.mark.long
@pytest.mark.slow
def test_safe_mode_permissions_and_quotas_are_clear_errors_and_the_output_is_exact(
    tmp_path: Path, hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Safe mode, permissions and quotas hit a job in turn; its output is exact in the end."""
    with job_on(tmp_path, hdfs_server.authority) as job:
        job.run()
        job.produce(2)

        hdfs_server.admin("-safemode", "enter")
        try:
            error = error_of(job, code=4)
        finally:
            hdfs_server.admin("-safemode", "leave")
        assert "Name node is in safe mode" in error
        assert "writable again" in error

        with monkeypatch.context() as other_user:
            other_user.setenv("HADOOP_USER_NAME", "stranger")
            error = error_of(job, code=4)
        assert "user=stranger, access=WRITE" in error
        assert "permissions" in error

        folder = job.config["paths"]["output"].partition("/jobs")[2] + "/a"
        hdfs_server.admin("-setQuota", "1", f"/jobs{folder}")
        code, result, _ = job.cli("run")
        assert code != 0
        assert result["totals"]["datasets_published"] == 2, "other datasets continue"
        reasons = [reason["text"] for reason in result["reasons"]["entries"] if reason["subject"] == "a"]
        assert any("quota" in reason and "exceeded" in reason for reason in reasons), reasons

        hdfs_server.admin("-clrQuota", f"/jobs{folder}")
        job.run()
        job.assert_exact()


@pytest.mark.long
@pytest.mark.slow
def test_output_quota_is_reported_as_an_outage_until_it_is_raised(tmp_path: Path, hdfs_server: HdfsServer) -> None:
    with job_on(tmp_path, hdfs_server.authority, replay={"max_attempts": 1}) as job:
        job.run()
        job.produce(2)
        output = "/jobs" + job.config["paths"]["output"].partition("/jobs")[2]
        hdfs_server.admin("-setSpaceQuota", "1", output)
        for _ in range(2):
            code, result, errors = job.cli("run")
            assert code != 0
            actual = f"{result} {errors}"
            assert "quota" in actual, actual
            assert "exceeded" in actual, actual
        _, status, _ = job.cli("status")
        assert {row["status"] for row in status["datasets"]} <= {"idle", "pending"}, status
        assert {row["failed_runs"] for row in status["datasets"]} == {0}, status
        hdfs_server.admin("-clrSpaceQuota", output)
        job.run()
        job.assert_exact()


@pytest.mark.long
@pytest.mark.slow
def test_lost_data_node_leaves_the_output_exact(tmp_path: Path, hdfs_server: HdfsServer) -> None:
    """Half of the DataNodes are lost, and the NameNode detects it only after minutes."""
    with job_on(tmp_path, hdfs_server.authority) as job:
        job.run()
        job.produce(2)
        hdfs_server.kill_data_node(2)
        try:
            code, _, errors = job.cli("run")
            if code != 0:
                assert "repair the storage" in errors
        finally:
            hdfs_server.start_data_node(2)
        job.run()
        job.assert_exact()


@pytest.mark.long
@pytest.mark.slow
def test_standby_name_node_is_a_clear_error_after_the_configured_retries(
    tmp_path: Path, hdfs_pair: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client retries for three minutes unless the Hadoop configuration sets another limit."""
    (tmp_path / "hdfs-site.xml").write_text(
        "<configuration><property><name>dfs.client.failover.max.attempts</name><value>1</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    hdfs_pair.make_active(1)
    with job_on(tmp_path, hdfs_pair.authority_of(2)) as job:
        error = error_of(job, code=4)
    assert "standby" in error
