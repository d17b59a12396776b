"""Audits after runs, operator actions and damage in any order, over several incarnations of the source."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distcommit.app.admin.abandon_datasets import not_published
from distcommit.app.admin.set_watermarks import set_watermark
from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import new_run_id
from distcommit.pipeline.task_flow import Stage, TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_time import TimePartition
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.operator import operator_actions
from distcommit.stores.snapshots.expiry_requests import put_expiry_request
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import TurningAway
from tests.simulation.world import World
from tests.spec.set_model import Act, SetModel
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, rebuild
from tests.unit.engine.driver.machines import OUTPUT, Machine, audit, dies, go, published, states

WORLD, MOST, OLD = World(), 6, 3
"""Retention expires records before offset `OLD`."""
DAY_MS = 86_400_000
BEFORE_MS, NEW_MS = 10 * DAY_MS, 100 * DAY_MS


@dataclass(frozen=True, slots=True)
class Timed(Converter):
    """A converter that gives each record a time by its offset."""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema.append(pa.field("time", pa.timestamp("ms", tz="UTC")))

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        times = [DAY_MS if at < OLD else NEW_MS for at in batch.column("offset").to_pylist()]
        columns = [*batch.columns, pa.array(times, pa.timestamp("ms", tz="UTC"))]
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=self.convert_schema(batch.schema, unit)))


def timed(source: Source, sink: Sink) -> TaskFlow:
    return replace(TaskFlow.straight(source, sink), stages=(Stage("timed", Timed()),))


WALKED = World(resized=True, flow=timed, files=FileSink(compression="none", partition_by=TimePartition(column="time")))
PLACES = st.integers(0, MOST)
ACTS = st.one_of(
    *(st.builds(Act, st.just(kind), PLACES) for kind in ("run", "set", "quarantine")),
    *(st.just(Act(kind)) for kind in ("forget", "recreate", "abandon", "retry", "accept", "expire", "rebucket")),
)


def counting(end: int, incarnation: int, holes: frozenset[int] = frozenset()) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": end}, incarnation=f"id {incarnation}", holes={"0": holes})})


class Job:
    """A job and its model. `files` maps each published file to its incarnation and offsets."""

    def __init__(self) -> None:
        self.machine, self.model = Machine(), SetModel()
        self.files = dict[str, tuple[int, list[int]]]()
        self.do(Act("run", 0))

    @property
    def store(self) -> JobStore:
        return WALKED.store(self.machine)

    def do(self, act: Act) -> None:
        """Carry out an act; if the model refuses it, require that the product refuses it too."""
        low, held_range = self.model.watermark or 0, self.model.held
        if act.kind == "accept" and held_range is not None:
            published_offsets = {
                at for path in published(self.machine) - self.files.keys() for at in self._offsets(path)
            }
            act = replace(act, published=frozenset(published_offsets))
        recreated = act.kind == "set" and self.model.watermark is not None and self._is_recreated()
        is_done = not recreated and self.model.do(act)
        match act.kind:
            case "run":
                assert go(WALKED, self.machine, self._source(max(act.at, low))).succeeded is is_done
            case "quarantine" if is_done:
                self._quarantine(act)
            case "retry" if held_range is not None:
                operator_actions.retry(self.store, "a", "op")
                assert go(WALKED, self.machine, self._source(held_range.stop)).succeeded is not self._is_recreated()
            case "expire":
                self._retain()
            case "set" | "forget" | "abandon" | "retry" | "accept" | "rebucket" if is_done:
                self._by_hand(act)
            case "set" | "forget" | "abandon" | "retry" | "accept" | "rebucket":
                with pytest.raises((ConfigurationError, ConflictError)):
                    self._by_hand(act)
        if self.model.held is None:
            self._see_files()

    def _is_recreated(self) -> bool:
        return self.model.there != self.model.incarnation

    def _source(self, end: int) -> ModelSource:
        return counting(end, self.model.there)

    def _by_hand(self, act: Act) -> None:
        match act.kind:
            case "set" | "forget":
                requested = {"0": act.at} if act.kind == "set" else None
                set_watermark(self.store, self._source(MOST), "a", requested, "op", new=False)
            case "abandon":
                operator_actions.abandon(self.store, "a", "op")
            case "retry":
                operator_actions.retry(self.store, "a", "op")
            case "accept":
                flow = timed(self._source(MOST), WALKED.files)
                operator_actions.accept(self.store, "a", "op", None, partial(not_published, self.store, flow, "op"))
            case "rebucket":
                rebucket(self.store, Move(self.store.buckets % 3 + 1), new_run_id(), lambda step: None)

    def _quarantine(self, act: Act) -> None:
        """Kill a run before it publishes its first or second file, then quarantine the dataset."""
        self.machine.faults.append(dies("rename", f"{OUTPUT}/a/", 1 + act.at % 2))
        with suppress(Crashed):
            go(WALKED, self.machine, self._source(act.at))
        self.machine.restart()
        if states(WALKED, self.machine)["a"].open is None:  # the sequence had a single file and is complete
            self.model.do(Act("retry"))
        else:
            operator_actions.quarantine(self.store, "a", "op")

    def _retain(self) -> None:
        """Retain as the command does: one run supersedes expired files, the next run deletes them."""
        put_expiry_request(self.store, BEFORE_MS, BEFORE_MS, "op")
        for kept_snapshots in (None, 2):
            WALKED.retain(self.machine, self._source(MOST), BEFORE_MS, kept_snapshots)

    def _offsets(self, path: str) -> list[int]:
        return [int(at) for at in pq.read_table(io.BytesIO(self.machine.read_file(path)))["offset"].to_pylist()]

    def _see_files(self) -> None:
        paths = published(self.machine)
        new = {path: (self.model.incarnation, self._offsets(path)) for path in paths - self.files.keys()}
        self.files = {**{path: recorded for path, recorded in self.files.items() if path in paths}, **new}

    def is_exact(self) -> bool:
        """Return whether each published record is owed or skipped, and is present exactly once."""
        counts = Counter((incarnation, at) for incarnation, offsets in self.files.values() for at in offsets)
        of_now = {at for incarnation, at in counts if incarnation == self.model.incarnation}
        once = all(count == 1 for count in counts.values())
        return self.model.held is None and once and of_now <= self.model.owed | self.model.passed

    def _is_owed(self, incarnation: int, offsets: list[int]) -> bool:
        """Return whether the audit must report these records as missing; skipped records are optional."""
        is_of_now = incarnation == self.model.incarnation
        return bool(set(offsets) - self.model.passed) if is_of_now else not self.model.passed

    def compare(self, place: int) -> None:
        """Compare the audit with the model, first unchanged and then with one published file missing."""
        result = audit(WALKED, self.machine)
        assert (result.gaps, result.altered, result.unknown_files, result.unproven_files) == (0, [], [], []), result
        assert result.exact is self.is_exact(), result
        assert result.pending == ([] if self.model.held is None else ["a (quarantined)"])
        missed = [path for path, observed in sorted(self.files.items()) if self._is_owed(*observed)]
        if missed and self.is_exact():
            path = missed[place % len(missed)]
            content = self.machine.read_file(path)
            self.machine.remove(path)
            assert not audit(WALKED, self.machine).exact, path
            self.machine.put(path, content)


EVERY_ACT = (
    *(Act("run", 2), Act("quarantine", 5), Act("expire"), Act("rebucket"), Act("accept"), Act("run", 6)),
    *(Act("expire"), Act("rebucket"), Act("recreate"), Act("forget"), Act("run", 1), Act("quarantine", 5)),
    *(Act("set", 0), Act("abandon"), Act("rebucket"), Act("run", 5), Act("expire"), Act("run", 6)),
)
"""Every kind of act, both accepted and refused."""


@pytest.mark.thorough
@settings(deadline=None, max_examples=60)
@example(acts=[*EVERY_ACT], place=0)
@example(acts=[Act("run", 3), Act("expire"), Act("set", 0), Act("run", 3)], place=0)
@given(acts=st.lists(ACTS, min_size=2, max_size=8), place=st.integers(0, 5))
def test_audit_agrees_with_the_model_after_each_action_and_reports_each_missing_file(
    acts: list[Act], place: int
) -> None:
    job = Job()
    for act in acts:
        job.do(act)
        job.compare(place)


def test_error_files_holes_reprocess_and_rebuild_of_two_incarnations_stay_exact() -> None:
    """In both incarnations record 3 is rejected and record 1 is a hole. Reprocess reads both rejected records."""
    rejecting, machine, holes = World(flow=TurningAway(frozenset({"a/0/3"}))), Machine(), frozenset({1})
    first, second = counting(5, 1, holes), counting(6, 2, holes)
    assert go(rejecting, machine, first).succeeded
    set_watermark(WORLD.store(machine), second, "a", None, "op", new=False)
    assert go(rejecting, machine, second).succeeded
    store = WORLD.store(machine)
    result = audit_store(store, ModelSource.provenance, deep=True)
    assert (result.exact, result.records, result.rejected, result.holes) == (True, 3 + 4, 2, 2)
    for path in sorted(path for path in machine.paths("/job/output") if path.endswith(".parquet")):
        content = machine.read_file(path)
        machine.remove(path)
        assert not audit_store(store, ModelSource.provenance, deep=True).exact, path
        machine.put(path, content)
    assert WORLD.reprocess(machine, second, "a").succeeded
    result = audit_store(store, ModelSource.provenance, deep=True)
    assert (result.exact, result.records, result.rejected) == (True, 9, 0)
    assert {earlier.watermark.incarnation for earlier in states(WORLD, machine)["a"].earlier_readings} == {"id 1"}
    lose_the_store(machine, 1)
    assert rebuild(WORLD, machine).written
    rebuilt = audit_store(WORLD.store(machine), ModelSource.provenance, deep=True)
    assert (rebuilt.exact, rebuilt.records, rebuilt.gaps) == (True, 9, 0)
    assert rebuilt.unproven_files == ["a: records of incarnation id 1"]
