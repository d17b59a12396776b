"""Jobs with folders and source files in Azure Blob Storage, on Azurite, and in Google Cloud Storage, on a server of
these tests, run by the command and audited."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from obstore.store import from_url

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from tests.jobs.kafka_job import kafka_job
from tests.servers.google_storage import GoogleStorageServer
from tests.servers.lossy_proxy import LossyProxy


@pytest.fixture(params=["az", "abfss", "gs"])
def root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty container."""
    is_google = request.param == "gs"
    server = request.getfixturevalue("google_storage_server" if is_google else "azure_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    if is_google:
        return f"gs://{server.make_bucket()}"
    container = server.make_container()
    return (
        f"az://{container}" if request.param == "az" else f"abfss://{container}@devstoreaccount1.dfs.core.windows.net"
    )


@pytest.mark.slow
def test_run_killed_in_its_commit_is_finished_by_the_next_run(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store copies a staged file to its final name, the run does not receive the answer, and is killed."""
    endpoint = "GOOGLE_BASE_URL" if root.startswith("gs") else "AZURE_STORAGE_ENDPOINT"
    secret = "GOOGLE_SERVICE_ACCOUNT_KEY" if root.startswith("gs") else "AZURE_STORAGE_ACCOUNT_KEY"
    direct = urlsplit(os.environ[endpoint])
    with (
        LossyProxy(direct.port or 0) as proxy,
        kafka_job(tmp_path, {f"t{n:02d}": 2 for n in range(6)}, commit={"min_interval_ms": 0, "buckets": 4}) as job,
    ):
        job.has_own_processes = True
        job.write(paths={name: f"{root}/jobs/clicks/{name}" for name in ("store", "staging", "output")})
        job.produce(4, days=2)
        store = Job.from_file(job.path).open_store(create=True)
        watcher = CommitWatcher(store)
        proxy.lose_answer_to(rb"PUT /.{,80}output(/|%2F).{,2000}x-(ms|goog)-copy-source")
        monkeypatch.setenv(endpoint, direct._replace(netloc=f"127.0.0.1:{proxy.port}").geturl())
        with job.start() as run:
            assert proxy.wait_for_loss(250), run.stderr.read_text()[-3000:]
            run.kill()
        monkeypatch.setenv(endpoint, direct.geturl())
        snapshot = watcher.snapshot()
        assert snapshot.pending
        assert snapshot.watermarks_unchanged
        result = job.run()
        assert result["totals"]["sequences_replayed"] == snapshot.pending
        job.assert_exact()
        output = "".join(path.read_text(errors="replace") for path in tmp_path.glob("run-*"))
        assert os.environ[secret][-100:] not in output


@pytest.mark.slow
@pytest.mark.parametrize("root", ["az", "gs"], indirect=True)
def test_files_in_a_container_are_read_once(tmp_path: Path, root: str) -> None:
    blobs = from_url(root, client_options={"allow_http": True})
    parquet = io.BytesIO()
    pq.write_table(pa.table({"n": [3, 4]}), parquet)
    obstore.put(blobs, "in/a/1.parquet", parquet.getvalue())
    job = tmp_path / "job.yaml"
    job.write_text(
        yaml.safe_dump(
            {
                "job": "blobs",
                "source": {
                    "type": "files",
                    "paths": [f"{root}/in/{{dataset}}/*.parquet"],
                    "format": "parquet",
                    "min_file_age_s": 0,
                },
                "paths": {name: f"{root}/job/{name}" for name in ("store", "staging", "output")},
                "spark": {"master": "local[2]"},
            }
        )
    )

    def run(command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "distcommit", command, str(job)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("run")
    parquet = io.BytesIO()
    pq.write_table(pa.table({"n": [5]}), parquet)
    obstore.put(blobs, "in/a/2.parquet", parquet.getvalue())
    for _ in range(2):
        run("run")
    run("audit")
    rows: list[int] = []
    for batch in obstore.list(blobs, "job/output"):
        for blob in batch:
            if blob["path"].endswith(".parquet"):
                table = pq.read_table(io.BytesIO(bytes(obstore.get(blobs, blob["path"]).bytes())))
                rows += table.column("n").to_pylist()
    assert sorted(rows) == [3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("root", ["gs"], indirect=True)
def test_check_reports_rejected_credentials(
    tmp_path: Path, root: str, google_storage_server: GoogleStorageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.yaml"
    paths = {name: f"{root}/job/{name}" for name in ("store", "staging", "output")}
    source = {"type": "files", "paths": [f"{root}/in/{{dataset}}/*.csv"], "format": "csv"}
    job.write_text(yaml.safe_dump({"job": "blobs", "source": source, "paths": paths}))
    key = google_storage_server.revoked_key()
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", key)
    done = subprocess.run(
        [sys.executable, "-m", "distcommit", "check", str(job)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "AuthenticationRequired" in done.stdout
    assert key[-100:] not in done.stdout + done.stderr
