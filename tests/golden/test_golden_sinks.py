"""A job of format 2, whose sink is of the user's own, is finished by today's program: what it had sealed is committed
by the infos that it had written down, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from distcommit.engine.run import RunResult, run
from distcommit.ingest.task_flow import TaskFlow
from distcommit.model.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    SinkCommitter,
)
from distcommit.model.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea
from distcommit.model.work import MAIN_BRANCH
from distcommit.sinks.committer_sink import CommitterSink
from distcommit.stores.job_store import JobStore
from tests.golden.job import source, store_at
from tests.golden.jobs import FINE, HALF, READ, go_on
from tests.golden.make import GOLDEN_JOBS_2
from tests.golden.test_golden_store import checked_out, marks, records, states, watermarks
from tests.simulation.world import launch_here

SEALED, PREPARED = {"back": {"0": 2}}, {HALF: READ[HALF]}
"""What its second run had sealed as it was killed, before it was committed, and what it had only prepared."""


class Kept(msgspec.Struct):
    """What the target, a file, has of a dataset."""

    epoch: int = 0
    rows: list[tuple[str, int]] = []


@dataclass(frozen=True, slots=True)
class KeptSink(CommitterSink):
    """As the job's own was, by today's interface: infos hold the rows themselves."""

    name: ClassVar[str] = "kept"
    path: Path

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return _Writer()

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return _Committer(self.path)


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._rows: list[Any] = []

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        self._rows += [[str(row["partition"]), row["offset"]] for row in batch.to_pylist()]

    def prepare_commit(self) -> Prepared:
        return Prepared([{"rows": self._rows, "ratio": 0.5, "raw": b"\xff", "none": None}])

    def abort(self) -> None:
        return


class _Committer(SinkCommitter):
    def __init__(self, path: Path) -> None:
        self._path = path

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        kept = target(self._path)
        outcomes = [self._commit(kept.setdefault(request.dataset_urn, Kept()), request) for request in requests]
        self._path.write_bytes(msgspec.json.encode(kept))
        return outcomes

    def _commit(self, kept: Kept, request: CommitRequest) -> CommitOutcome:
        assert request.branch == MAIN_BRANCH
        if request.epoch <= kept.epoch:
            return AlreadyCommitted()
        for info in request.infos:
            assert info == {"rows": info["rows"], "ratio": 0.5, "raw": b"\xff", "none": None}
            kept.rows += [(partition, offset) for partition, offset in info["rows"]]
        kept.epoch = request.epoch
        return Committed()


def target(path: Path) -> dict[str, Kept]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Kept])


def expected(counts: dict[str, dict[str, int]]) -> dict[str, list[tuple[str, int]]]:
    return {urn: [(p, at) for p in sorted(parts) for at in range(parts[p])] for urn, parts in counts.items()}


def rows(folder: Path) -> dict[str, list[tuple[str, int]]]:
    return {urn: sorted(kept.rows) for urn, kept in target(folder / "target.json").items()}


def rerun(store: JobStore, folder: Path, counts: dict[str, dict[str, int]], number: int) -> RunResult:
    settings = go_on(store, source(counts), number)
    flow = TaskFlow.straight(source(counts), KeptSink(folder / "target.json"))
    return run(launch_here, replace(settings, flow=flow))


def test_what_it_had_sealed_is_there() -> None:
    """Else the test below would show nothing."""
    found = {urn: state.status.value for urn, state in states(store_at(GOLDEN_JOBS_2 / "sink")).items()}
    assert found == {FINE: "idle", **dict.fromkeys(SEALED, "pending")}
    assert rows(GOLDEN_JOBS_2 / "sink") == expected({FINE: READ[FINE]})


def test_sequences_of_a_sink_are_committed_by_their_stored_infos(tmp_path: Path) -> None:
    folder = checked_out(GOLDEN_JOBS_2 / "sink", tmp_path / "sink")
    store, counts = store_at(folder), {FINE: READ[FINE], **SEALED, **PREPARED}
    result = rerun(store, folder, counts, 8)
    assert result.succeeded, result
    assert (result.totals.sequences_replayed, result.totals.records_read) == (len(SEALED), records(PREPARED))
    assert rows(folder) == expected(counts)
    more = {urn: {partition: count + 1 for partition, count in parts.items()} for urn, parts in counts.items()}
    assert rerun(store, folder, more, 9).succeeded
    assert rows(folder) == expected(more)
    assert watermarks(store) == marks(more)
