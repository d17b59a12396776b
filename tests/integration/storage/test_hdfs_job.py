"""The main job with all of its folders on HDFS: killed in the middle of its commit, run again, and audited."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from tests.jobs.kafka_job import kafka_job
from tests.servers.hdfs import HdfsServer
from tests.servers.lossy_proxy import LossyProxy


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["hdfs", pytest.param("webhdfs", marks=pytest.mark.long)])
def test_run_killed_in_its_commit_is_finished_by_the_next_run(
    tmp_path: Path, hdfs_server: HdfsServer, scheme: str
) -> None:
    """The NameNode renames staged files, the run does not receive the answer, and is killed."""
    authority, durability, rename = {
        "hdfs": (hdfs_server.authority, "fsync", b"rename2.{,150}/staging/.{,250}/output/"),
        "webhdfs": (hdfs_server.web_authority, "none", b"/staging/.{,250}%2Foutput%2F.{,250}op=RENAME"),
    }[scheme]
    commit = {"min_interval_ms": 0, "durability": durability}
    with (
        LossyProxy(int(authority.rpartition(":")[2])) as proxy,
        kafka_job(tmp_path, {f"t{n:02d}": 2 for n in range(12)}, commit=commit) as job,
    ):
        place = f"{scheme}://127.0.0.1:{proxy.port}/jobs/{uuid.uuid4().hex}"
        job.write(paths={name: f"{place}/{name}" for name in ("store", "staging", "output")})
        job.produce(4, days=2)
        store = Job.from_file(job.path).open_store(create=True)
        assert store.fs.scheme == scheme
        watcher = CommitWatcher(store)
        proxy.lose_answer_to(rename, unless=b"FileNotFoundException")  # the first file's, before its folder exists
        with job.start() as run:
            assert proxy.wait_for_loss(200), run.stderr.read_text()[-3000:]
            run.kill()
        snapshot = watcher.snapshot()
        assert snapshot.pending
        assert snapshot.published
        assert snapshot.watermarks_unchanged
        logs = [store.bucket_log(bucket) for bucket in range(store.buckets)]
        pending = [opened.sequence.dataset_urn for log in logs for opened in log.refresh().pending()]
        assert {last_record(job.path, urn) for urn in pending} == {"Intent"}
        result = job.run()
        assert result["totals"]["sequences_replayed"] == snapshot.pending
        job.assert_exact()
        assert {last_record(job.path, urn) for urn in pending} == {"Done"}


def last_record(job_file: Path, urn: str) -> str:
    """Return a dataset's newest sealed or closed record, as `distcommit store log` prints it."""
    lines = Job.from_file(job_file).log(dataset=urn).lines
    assert not any(line.ignored or line.unreadable for line in lines)
    return [line.record for line in lines if line.record in ("Intent", "Done")][-1]
