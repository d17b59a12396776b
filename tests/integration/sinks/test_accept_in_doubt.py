"""An accepted dataset whose target refused prepared transactions leaves nothing in doubt after the next run
(`distcommit` on real servers)."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distcommit import Job
from tests.integration.sinks.test_table_sink_jobs import InMariadb, InPostgresql, Place
from tests.integration.sinks.test_unavailable_targets import FilesJob, Target
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.mariadb import MariadbServer, prepared_at
from tests.servers.postgresql import PostgresServer


class Preparing(Target):
    """Tables of a database that prepares transactions."""

    def __init__(self, place: Place, port: int) -> None:
        self.place, self.port = place, port
        place.settings = {"two_phase": True}

    def sink(self) -> dict[str, Any]:
        return self.place.sink()

    def ids(self) -> Counter[str]:
        return Counter(name for (name,) in self.place.sql(f"SELECT id FROM {self.place.named('d0')}"))

    def prepared(self) -> int:
        if isinstance(self.place, InMariadb):
            return len(prepared_at(self.place.server))
        ((count,),) = self.place.sql("SELECT count(*) FROM pg_prepared_xacts")
        return int(count)

    def change_identity(self, *, again: bool) -> None:
        """Give the target's ledger another identity than the store knows, or restore the first one."""
        ledger, change = self.place.named("distcommit_ledger"), "- 1000" if again else "+ 1000"
        self.place.sql(f"UPDATE {ledger} SET epoch = epoch {change} WHERE dataset = 'd0'")


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.long)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Preparing]:
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("preparing_server")
        yield Preparing(InPostgresql(tmp_path, server), server.port)
    else:
        other: MariadbServer = request.getfixturevalue("mariadb_server")
        yield Preparing(InMariadb(tmp_path, other), other.port)


def accepted(job: FilesJob) -> str:
    """Return the output of a successful `distcommit dataset release d0 accept`."""
    command = [sys.executable, "-m", "distcommit", "dataset", "release", str(job.path), "d0", "accept"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_accepted_dataset_is_rolled_back_at_its_target_by_the_next_run_at_the_latest(
    tmp_path: Path, target: Preparing
) -> None:
    job = FilesJob(tmp_path, target, datasets=1)
    job.arrive()
    assert job.run() == 0, job.said()
    expected = target.ids()
    text = job.path.read_text()
    for is_away in (False, True):
        job.arrive()
        target.change_identity(again=False)
        assert job.run() == 1, job.said()
        (dataset,) = Job.from_file(job.path).status().datasets
        assert dataset.status == "quarantined"
        assert target.prepared() == 1
        target.change_identity(again=True)
        if is_away:
            with LossyProxy(target.port) as proxy:
                port = proxy.port
            job.path.write_text(text.replace(f":{target.port}/", f":{port}/"))
            assert "the next run rolls back the prepared records" in accepted(job)
            assert target.prepared() == 1
            job.path.write_text(text)
        else:
            accepted(job)
            assert target.prepared() == 0
        job.arrive()
        assert job.run() == 0, job.said()
        assert target.prepared() == 0
        expected |= Counter({name: 1 for name in job.arrived() if name.split("/")[1] == str(job._arrived - 1)})
        assert target.ids() == expected, "accepted records were not committed, and nothing is there twice"
    assert {row.status for row in Job.from_file(job.path).status().datasets} == {"idle"}
