"""A ledger that is dropped after a dataset's first commit, before that commit is known to be done."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from distcommit import Job
from tests.integration.sinks.test_table_sink_jobs import InPostgresql
from tests.integration.sinks.test_unavailable_targets import ROWS, FilesJob, Target
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.postgresql import PostgresServer


class Tables(Target):
    """Tables for each dataset, in PostgreSQL."""

    def __init__(self, place: InPostgresql) -> None:
        self.place = place

    def sink(self) -> dict[str, Any]:
        return self.place.sink()

    def ids(self) -> Counter[str]:
        tables = self.place.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'killed' AND tablename LIKE 'd_'")
        return Counter(name for (table,) in tables for (name,) in self.place.sql(f"SELECT id FROM killed.{table}"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_first_commit_is_not_repeated_after_a_kill_and_a_dropped_ledger(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    target = Tables(InPostgresql(tmp_path, postgres_server))
    job = FilesJob(tmp_path, target, datasets=1)
    job.arrive()
    assert job.run() == 0, job.said()
    job.datasets = ["d1"]
    job.arrive()
    expected = {f"d{number}/{number}/{row}": 1 for number in (0, 1) for row in range(ROWS)}
    with ExitStack() as stack:
        proxy = stack.enter_context(LossyProxy(postgres_server.port))
        text = job.path.read_text()
        job.path.write_text(text.replace(f":{postgres_server.port}/", f":{proxy.port}/"))
        proxy.lose_answer_to(rb"COMMIT\0")
        with job.start() as run:
            assert proxy.wait_for_loss(300), job.said()
            stack.close()  # and the ledger can no longer be queried
            run.kill()
    job.path.write_text(text)
    assert target.ids() == expected, "it is committed, and no ledger shows it"
    target.place.sql("DROP TABLE killed.distcommit_ledger")
    assert job.run() == 1, job.said()
    assert target.ids() == expected
    (dataset,) = (row for row in Job.from_file(job.path).status().datasets if row.dataset == "d1")
    assert dataset.status == "quarantined"
    assert "but the present ledger is" in dataset.reason, dataset
    Job.from_file(job.path).accept("d1")
    job.arrive()
    assert job.run() == 0, job.said()
    assert target.ids() == {**expected, **{f"d1/2/{row}": 1 for row in range(ROWS)}}
