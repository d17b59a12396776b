"""Changes to many tables of a REST catalog. They are sent in few calls if the catalog applies such calls correctly, and
one by one otherwise. If one change or one answer fails, the other tables are committed, each once."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.types import StringType

from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
)
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened, opened
from distcommit.sinks.iceberg.catalog.rest_tables import RestTables
from distcommit.sinks.iceberg.catalog.tables import Change
from distcommit.sinks.iceberg.catalog.transactions import commit_together
from distcommit.sinks.iceberg.new_snapshot import NewSnapshot
from distcommit.sinks.iceberg.sink import IcebergSink
from tests.servers.iceberg_rest import IcebergRestServer
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.nessie import NessieServer

FS = LocalFileSystem(durable=False)
TOGETHER, ALONE = "POST transactions/commit", "POST table"
TOGETHER_IN_USE = "distcommit.sinks.iceberg.catalog.rest_tables.commit_together"


@dataclass
class Target:
    """A separate namespace in a catalog; the tables' files are in a folder."""

    folder: Path
    uri: str
    namespace: str = field(default_factory=lambda: f"n{uuid.uuid4().hex}")

    def sink(self) -> IcebergSink:
        files = {name: f"file://{self.folder}/{name}" for name in ("write.data.path", "write.metadata.path")}
        catalog = {"type": "rest", "uri": self.uri}
        settings = {"catalog": catalog, "namespace": self.namespace, "properties": files}
        return IcebergSink.model_validate({"type": "iceberg", **settings})

    def prepare(self, urn: str, epoch: int, *rows: int) -> CommitRequest:
        attempt = uuid.uuid4().hex
        (self.folder / "staging" / attempt).mkdir(parents=True)
        area = StagingArea(FS, f"{self.folder}/staging/{attempt}", attempt, f"{self.folder}/output")
        identity = AttemptIdentity(f"run-{epoch}", epoch, urn, "unit", attempt)
        writer = self.sink().open_writer(identity, area, Origin())
        writer.write(pa.record_batch({"id": pa.array(rows, pa.int64())}))
        return CommitRequest(urn, epoch, tuple(writer.prepare_commit().infos), attempts=(attempt,))

    def commit(self, *requests: CommitRequest) -> list[CommitOutcome]:
        context = CommitterContext(FS, f"{self.folder}/staging", f"{self.folder}/output", "store-1")
        return list(self.sink().open_committer(context).commit(requests))

    @property
    def tables(self) -> RestTables:
        tables = opened(self.sink().catalog)
        assert isinstance(tables, RestTables)
        return tables

    def table(self, name: str) -> Table:
        with load_catalog("default", type="rest", uri=self.uri) as client:
            return client.load_table((self.namespace, name))

    def rows(self, name: str) -> list[int]:
        return sorted(self.table(name).scan().to_arrow()["id"].to_pylist())

    def drop(self, name: str) -> None:
        with load_catalog("default", type="rest", uri=self.uri) as client:
            client.drop_table((self.namespace, name))

    def change(self, name: str) -> Change:
        """Return a change that adds a snapshot without files to the table's present version."""
        change = NewSnapshot.of(self.table(name)).change([], frozenset(), {"by": "us"}, {})
        assert change is not None
        return change


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the catalog's change calls by kind."""
    counts, sending = Counter[str](), requests.Session.send

    def send(self: requests.Session, request: requests.PreparedRequest, **settings: Any) -> requests.Response:
        if request.method == "POST" and "/tables/" in str(request.url):
            counts[ALONE] += 1
        if str(request.url).endswith("transactions/commit"):
            counts[TOGETHER] += 1
        return sending(self, request, **settings)

    monkeypatch.setattr(requests.Session, "send", send)
    return counts


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_opened()


@pytest.fixture
def target(tmp_path: Path, nessie_server: NessieServer) -> Target:
    return Target(tmp_path, nessie_server.url)


def test_many_tables_are_changed_by_one_call(target: Target, calls: Counter[str]) -> None:
    """A probe first shows that the catalog accepts only one change of each table per call."""
    names = [f"t{number}" for number in range(10)]
    assert set(target.commit(*(target.prepare(name, 1, 1) for name in names))) == {Committed()}
    assert calls == {TOGETHER: 2, ALONE: 1}
    calls.clear()
    assert set(target.commit(*(target.prepare(name, 2, 2) for name in names))) == {Committed()}
    assert calls == {TOGETHER: 1}, "the probe is not repeated"
    assert target.commit(target.prepare("t0", 3, 3)) == [Committed()]
    assert calls == {TOGETHER: 1, ALONE: 1}, "a single table is sent alone"
    assert [target.rows(name) for name in names] == [[1, 2, 3], *[[1, 2]] * 9]


def test_missing_tables_are_created_and_narrow_ones_widened_concurrently(
    tmp_path: Path, iceberg_rest_server: IcebergRestServer, monkeypatch: pytest.MonkeyPatch, calls: Counter[str]
) -> None:
    target = Target(tmp_path, iceberg_rest_server.url)
    names, together = [f"t{number}" for number in range(6)], threading.Barrier(6)
    creating = RestCatalog.create_table

    def waits(self: RestCatalog, *arguments: Any, **named: Any) -> Table:
        together.wait(30)
        table: Table = creating(self, *arguments, **named)
        return table

    monkeypatch.setattr(RestCatalog, "create_table", waits)
    target.sink().announce(names, pa.schema([("id", pa.int32())]), "run-1")
    assert all(target.table(name).schema().column_names == ["id"] for name in names)
    calls.clear()
    evolving = target.sink().model_copy(update={"evolve": "add_columns"})
    evolving.announce(names, pa.schema([("id", pa.int64()), ("note", pa.string())]), "run-2")
    assert all(target.table(name).schema().column_names == ["id", "note"] for name in names)
    assert calls == {ALONE: 6}, "schema changes can't reveal a skipped change, so that they are sent alone"
    assert set(target.commit(*(target.prepare(name, 2, 2**40) for name in names))) == {Committed()}
    assert [target.rows(name) for name in names] == [[2**40]] * 6


def test_catalog_that_skips_changes_receives_one_table_per_call(
    tmp_path: Path, iceberg_rest_server: IcebergRestServer, calls: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Iceberg's reference server returns success even if a table has changed between its check and its commit."""
    target = Target(tmp_path, iceberg_rest_server.url)
    names = [f"t{number}" for number in range(5)]
    assert set(target.commit(*(target.prepare(name, 1, 1) for name in names))) == {Committed()}
    assert calls == {TOGETHER: 1, ALONE: 5}, "one probe, one removal of its mark, and the other tables alone"
    assert "has skipped one of its changes" in caplog.text
    assert [target.rows(name) for name in names] == [[1]] * 5
    assert "distcommit.probe" not in target.table("t0").properties
    assert set(target.commit(*(target.prepare(name, 2, 2) for name in names))) == {Committed()}
    assert calls == {TOGETHER: 1, ALONE: 10}


def test_skipped_change_of_such_a_catalog_is_reported_as_success(
    tmp_path: Path, iceberg_rest_server: IcebergRestServer
) -> None:
    """This is why the probe exists: one call with two changes of one table succeeds, and one of them is lost."""
    target = Target(tmp_path, iceberg_rest_server.url)
    target.prepare("t", 1, 1)
    commit_together(target.tables._rest, [target.change("t"), target.change("t")])
    assert len(target.table("t").snapshots()) == 1


def test_catalog_that_applies_both_changes_of_one_table_is_trusted(
    tmp_path: Path, iceberg_rest_server: IcebergRestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polaris does so according to its code; here each table's changes are merged before they are sent."""
    sizes = list[int]()

    def put_together(rest: Any, changes: Any) -> None:
        sizes.append(len(changes))
        of_tables: dict[Any, list[Change]] = {}
        for change in changes:
            of_tables.setdefault(change.table.name(), []).append(change)
        for first, *more in of_tables.values():
            updates = (*first.updates, *(update for change in more for update in change.updates))
            rest.commit_table(first.table, first.requirements, updates)

    monkeypatch.setattr(TOGETHER_IN_USE, put_together)
    target = Target(tmp_path, iceberg_rest_server.url)
    names = [f"t{number}" for number in range(4)]
    for epoch in (1, 2):
        assert set(target.commit(*(target.prepare(name, epoch, epoch) for name in names))) == {Committed()}
    assert sizes == [2, 3, 4], "a probe of one table twice, the others, then all"
    assert [target.rows(name) for name in names] == [[1, 2]] * 4
    assert "distcommit.probe" not in target.table("t0").properties


def test_tables_changed_by_others_are_isolated_by_bisection(target: Target, calls: Counter[str]) -> None:
    names = [f"t{number}" for number in range(8)]
    target.commit(*(target.prepare(name, 1, 1) for name in names))
    changes = [target.change(name) for name in names]
    changed = ("t3", "t6")
    target.commit(*(target.prepare(name, 2, 2) for name in changed))
    calls.clear()
    assert target.tables.commit(changes, lambda: None) == [name not in changed for name in names]
    assert calls == {TOGETHER: 1 + 2 + 4, ALONE: 4}, "all, halves, quarters, and the tables of two quarters alone"
    assert [target.rows(name) for name in changed] == [[1, 2], [1, 2]]
    by_us = [name for name in names if target.table(name).properties.get("by") == "us"]
    assert by_us == [name for name in names if name not in changed]


def test_missing_table_does_not_affect_other_tables(target: Target) -> None:
    names = [f"t{number}" for number in range(6)]
    target.commit(*(target.prepare(name, 1, 1) for name in names))
    asked = [target.prepare(name, 2, 2) for name in names]
    target.drop("t1")
    outcomes = target.commit(*asked)
    gone = outcomes.pop(1)
    assert isinstance(gone, FailedForGood)
    assert "does not exist any more" in gone.reason
    assert outcomes == [Committed()] * 5


def test_table_altered_between_the_lookup_and_the_commit_receives_nothing(
    tmp_path: Path, iceberg_rest_server: IcebergRestServer
) -> None:
    """The catalog compares the schema that the files were checked against, and not only the newest snapshot."""
    target = Target(tmp_path, iceberg_rest_server.url)
    request = target.prepare("t", 1, 1)
    stale = target.change("t")
    with target.table("t").update_schema() as change:
        change.add_column("note", StringType())
    assert target.tables.commit([stale], lambda: None) == [False]
    assert target.table("t").metadata.snapshots == []
    assert target.commit(request) == [Committed()]


@pytest.mark.parametrize("which", [TOGETHER, ALONE])
def test_lost_answer_to_a_commit_is_looked_up(tmp_path: Path, nessie_server: NessieServer, which: str) -> None:
    with LossyProxy(nessie_server.port) as proxy:
        target = Target(tmp_path, nessie_server.url.replace(str(nessie_server.port), str(proxy.port)))
        names = [f"t{number}" for number in range(6)]
        first = [target.prepare(name, 1, 1) for name in names]
        if which == TOGETHER:
            assert set(target.commit(*first)) == {Committed()}
        asked = first if which == ALONE else [target.prepare(name, 2, 2) for name in names]
        proxy.lose_answer_to(rb"POST \S*/transactions/commit" if which == TOGETHER else rb"POST \S*/tables/\S+ ")
        outcomes = target.commit(*asked)
        assert proxy.wait_for_loss()
        assert AlreadyCommitted() in outcomes
        assert set(outcomes) <= {Committed(), AlreadyCommitted()}
        assert [target.rows(name) for name in names] == [[1, 2] if which == TOGETHER else [1]] * 6


def test_unknown_outcome_reduces_the_tables_per_call_until_calls_succeed_again(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models a catalog, or a proxy before it, that times out for large calls."""
    monkeypatch.setattr("distcommit.sinks.iceberg.catalog.rest_tables._MOST_TOGETHER", 8)
    names = [f"t{number}" for number in range(8)]
    target.commit(*(target.prepare(name, 1, 1) for name in names))
    sizes = list[int]()

    def in_time(most: int) -> None:
        def commit(rest: Any, changes: Any) -> None:
            sizes.append(len(changes))
            if len(changes) > most:
                raise CommitStateUnknownException("504")
            commit_together(rest, changes)

        monkeypatch.setattr(TOGETHER_IN_USE, commit)

    def outcomes(epoch: int) -> set[CommitOutcome]:
        sizes.clear()
        return set(target.commit(*(target.prepare(name, epoch, epoch) for name in names)))

    in_time(2)
    assert outcomes(2) == {Committed()}
    assert sizes == [8], "after the failed call each table is sent alone"
    assert outcomes(3) == {Committed()}
    assert sizes == [2] * 4
    in_time(8)
    assert outcomes(4) == {Committed()}
    assert max(sizes) > 2, "the tables per call increase again"
    assert all(target.rows(name) == [1, 2, 3, 4] for name in names)


def test_forbidden_tables_wait_and_the_others_are_committed(tmp_path: Path) -> None:
    """Nessie returns 500, so that the outcome of the other tables in the same call is unknown."""
    with NessieServer(forbidden="denied") as server:
        target = Target(tmp_path, server.url)
        names = ["a", "denied", "b", "denied2", "c"]
        for epoch in (1, 2):
            asked = [target.prepare(name, epoch, epoch) for name in names]
            for name, answer in zip(names, target.commit(*asked), strict=True):
                if "denied" in name:
                    assert isinstance(answer, RetryLater)
                    assert "not allowed" in answer.reason
                else:
                    assert answer in (Committed(), AlreadyCommitted())
        assert [target.rows(name) for name in names] == [[1, 2], [], [1, 2], [], [1, 2]]
