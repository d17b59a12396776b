"""The main job with all its folders in an object store: killed in the middle of its commit, run again, and audited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from tests.jobs.kafka_job import kafka_job
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.s3 import S3Server


def _uploads(bucket: str) -> list[Any]:
    return list(boto3.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads", ()))


@pytest.mark.slow
def test_run_killed_in_its_commit_is_finished_by_the_next_run(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store completes an upload, the run does not receive the answer, and is killed."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = s3_server.make_bucket()
    with (
        LossyProxy(int(s3_server.endpoint_url.rpartition(":")[2])) as proxy,
        kafka_job(tmp_path, {f"t{n:02d}": 2 for n in range(6)}, commit={"min_interval_ms": 0, "buckets": 4}) as job,
    ):
        job.has_own_processes = True
        job.write(paths={name: f"s3://{bucket}/jobs/clicks/{name}" for name in ("store", "staging", "output")})
        job.produce(4, days=2)
        store = Job.from_file(job.path).open_store(create=True)
        watcher = CommitWatcher(store)
        proxy.lose_answer_to(rb"POST /.{,80}/output/.{,400}\?uploadId=")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        with job.start() as run:
            assert proxy.wait_for_loss(250), run.stderr.read_text()[-3000:]
            run.kill()
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint_url)
        snapshot = watcher.snapshot()
        assert snapshot.pending
        assert snapshot.published
        assert snapshot.watermarks_unchanged
        result = job.run()
        assert result["totals"]["sequences_replayed"] == snapshot.pending
        job.assert_exact()
        assert _uploads(bucket) == []
        output = "".join(path.read_text(errors="replace") for path in tmp_path.glob("run-*"))
        assert s3_server.environment["AWS_SECRET_ACCESS_KEY"] not in output
