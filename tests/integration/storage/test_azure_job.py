"""Jobs with folders and source files in Azure Blob Storage, on Azurite, run by the command and audited."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from obstore.store import from_url

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from tests.jobs.kafka_job import kafka_job
from tests.servers.azure import AzureServer
from tests.servers.lossy_proxy import LossyProxy


@pytest.fixture
def container(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in azure_server.environment.items():
        monkeypatch.setenv(name, value)
    return azure_server.make_container()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["az", "abfss"])
def test_run_killed_in_its_commit_is_finished_by_the_next_run(
    tmp_path: Path, azure_server: AzureServer, container: str, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """The store copies a staged file to its final name, the run does not receive the answer, and is killed."""
    root = f"az://{container}" if scheme == "az" else f"abfss://{container}@devstoreaccount1.dfs.core.windows.net"
    with (
        LossyProxy(azure_server.port) as proxy,
        kafka_job(tmp_path, {f"t{n:02d}": 2 for n in range(6)}, commit={"min_interval_ms": 0, "buckets": 4}) as job,
    ):
        job.has_own_processes = True
        job.write(paths={name: f"{root}/jobs/clicks/{name}" for name in ("store", "staging", "output")})
        job.produce(4, days=2)
        store = Job.from_file(job.path).open_store(create=True)
        watcher = CommitWatcher(store)
        proxy.lose_answer_to(rb"PUT /.{,80}/output/.{,2000}x-ms-copy-source")
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azure_server.endpoint_at(proxy.port))
        with job.start() as run:
            assert proxy.wait_for_loss(250), run.stderr.read_text()[-3000:]
            run.kill()
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azure_server.endpoint_at(azure_server.port))
        snapshot = watcher.snapshot()
        assert snapshot.pending
        assert snapshot.watermarks_unchanged
        result = job.run()
        assert result["totals"]["sequences_replayed"] == snapshot.pending
        job.assert_exact()
        output = "".join(path.read_text(errors="replace") for path in tmp_path.glob("run-*"))
        assert azure_server.environment["AZURE_STORAGE_ACCOUNT_KEY"] not in output


@pytest.mark.slow
def test_files_in_a_container_are_read_once(tmp_path: Path, container: str) -> None:
    blobs = from_url(f"az://{container}", client_options={"allow_http": True})
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
                    "paths": [f"az://{container}/in/{{dataset}}/*.parquet"],
                    "format": "parquet",
                    "min_file_age_s": 0,
                },
                "paths": {name: f"az://{container}/job/{name}" for name in ("store", "staging", "output")},
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
