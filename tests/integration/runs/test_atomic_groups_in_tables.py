"""Datasets that share a database table in a `scope: job` job, by `distcommit run` on real servers.

A dataset that the table refuses holds the others, and in the end each record is there once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from tests.integration.sinks.test_table_sink_jobs import InMariadb, InPostgresql, InSqlite, Place
from tests.integration.sinks.test_unavailable_targets import REFUSED, FilesJob, RefusingTarget

_TAKEN = f"id NOT LIKE '{REFUSED}/1/%'"
_BY_CHECK = f"ALTER TABLE {{}} ADD CONSTRAINT refused CHECK ({_TAKEN})", "ALTER TABLE {} DROP CONSTRAINT refused"
_BY_TRIGGER = (
    f"CREATE TRIGGER refused BEFORE INSERT ON {{}} WHEN NOT NEW.{_TAKEN} BEGIN SELECT RAISE(ABORT, 'refused'); END",
    "DROP TRIGGER refused",
)


class OneTable(RefusingTarget):
    """The table `events` of a database, and its plain client."""

    refusal: ClassVar[str] = "the table does not take the rows"

    def __init__(self, place: Place, *refuse: str) -> None:
        self._place, (self._begin, self._end) = place, refuse

    def sink(self) -> dict[str, Any]:
        return {**self._place.sink(), "table": "events"}

    def ids(self) -> Counter[str]:
        return Counter(name for (name,) in self._place.sql(f"SELECT id FROM {self._place.named('events')}"))

    @contextmanager
    def refusing(self, dataset: str) -> Iterator[None]:
        """Refuse all records except the first file's."""
        self._place.sql(self._begin.format(self._place.named("events")))
        yield
        self._place.sql(self._end.format(self._place.named("events")))


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("mariadb", marks=pytest.mark.long),
        pytest.param("postgresql", marks=pytest.mark.long),
    ]
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> OneTable:
    if request.param == "sqlite":
        return OneTable(InSqlite(tmp_path), *_BY_TRIGGER)
    if request.param == "mariadb":
        return OneTable(InMariadb(tmp_path, request.getfixturevalue("mariadb_server")), *_BY_CHECK)
    return OneTable(InPostgresql(tmp_path, request.getfixturevalue("postgres_server")), *_BY_CHECK)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_dataset_refused_by_its_table_holds_the_others_and_is_exact_in_spite_of_kills(
    tmp_path: Path, target: OneTable
) -> None:
    job = FilesJob(tmp_path, target, datasets=5)
    written = yaml.safe_load(job.path.read_text())
    job.path.write_text(yaml.safe_dump({**written, "commit": {**written["commit"], "scope": "job"}}))
    job.arrive()
    watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
    with job.start() as run:
        deadline_s = time.monotonic() + 300
        while not watcher.pending() and run.wait(0.002) is None:
            assert time.monotonic() < deadline_s, job.said()
        run.kill()
    assert job.run() == 0, job.said()
    job.assert_exact()
    job.arrive()
    with target.refusing(REFUSED):
        assert job.run() == 1, job.said()
        states = {row.dataset: row for row in Job.from_file(job.path).status().datasets}
        assert {name: row.status for name, row in states.items()} == {
            name: "quarantined" if name == REFUSED else "pending" for name in job.datasets
        }
        assert target.refusal in states[REFUSED].reason, states[REFUSED]
        assert f"held_by={REFUSED}" in states["d4"].reason, states["d4"]
        assert target.ids() == job.arrived(*job.datasets, files=1), "nothing of any"
    Job.from_file(job.path).retry(REFUSED)
    assert job.run() == 0, job.said()
    job.assert_exact()
