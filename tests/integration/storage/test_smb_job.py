"""The main job with all of its folders on an SMB share: killed in the middle of its commit, run again, and audited."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from tests.jobs.kafka_job import kafka_job
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.smb import SmbServer, renaming_request


@pytest.mark.slow
def test_run_killed_in_its_commit_is_finished_by_the_next_run(
    tmp_path: Path, smb_server: SmbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server renames a staged file, the run does not receive the answer, and is killed."""
    smb_server.log_in(monkeypatch)
    commit = {"min_interval_ms": 0, "durability": "none", "buckets": 4}
    with (
        LossyProxy(smb_server.port) as proxy,
        kafka_job(tmp_path, {f"t{n:02d}": 2 for n in range(6)}, commit=commit) as job,
    ):
        place = f"smb://127.0.0.1:{proxy.port}/data/jobs/{uuid.uuid4().hex}"
        job.has_own_processes = True
        job.write(paths={name: f"{place}/{name}" for name in ("store", "staging", "output")})
        job.produce(4, days=2)
        store = Job.from_file(job.path).open_store(create=True)
        assert store.fs.scheme == "smb"
        watcher = CommitWatcher(store)
        proxy.lose_answer_to(renaming_request("\\output\\t"))
        with job.start() as run:
            assert proxy.wait_for_loss(250), run.stderr.read_text()[-3000:]
            run.kill()
        snapshot = watcher.snapshot()
        assert snapshot.pending
        assert snapshot.published
        assert snapshot.watermarks_unchanged
        result = job.run()
        assert result["totals"]["sequences_replayed"] == snapshot.pending
        job.assert_exact()
        output = "".join(path.read_text(errors="replace") for path in tmp_path.glob("run-*"))
        assert smb_server.environment["FSSPEC_SMB_PASSWORD"] not in output
