"""Reprocess in a job with freshness targets: error files are read whole, independently of the slice length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.records.freshness_targets import Freshness
from distcommit.core.records.maintenance_units import ReprocessedFiles
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import RunResult, new_run_id, run
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.maintenance.reprocess_source import ReprocessSource
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.logs.fencing import begin_run, end_run
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import SimulatedClock, launch_here

NAMES = ("a", "b", "c")
TARGETS = Freshness(target_s=60, records_per_run=2, slice_s=10)


class _Slow(SimulatedClock):
    """A clock that advances by a second at each reading."""

    def now_ms(self) -> int:
        self.sleep(1)
        return super().now_ms()


@dataclass(frozen=True, slots=True)
class _RejectsAll(Converter):
    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch.slice(0, 0), pa.array([], pa.int64()), dict.fromkeys(range(batch.num_rows), "wrong"))


class _Counting(ModelSource):
    """A source whose offsets count the records that were read."""

    provenance = replace(ModelSource.provenance, counts_reading=True)


class _Job:
    def __init__(self, folder: Path) -> None:
        self.roots, self.clock = Roots(*(str(folder / n) for n in ("store", "staging", "output"))), _Slow()

    @property
    def store(self) -> JobStore:
        return open_store(LocalFileSystem(durable=False), self.roots, "job", 1, create=True)

    def run(self, flow: TaskFlow, freshness: Freshness = TARGETS) -> RunResult:
        store, run_id = self.store, new_run_id()
        settings = RunSettings(
            store=store,
            run_id=run_id,
            epoch=begin_run(store, run_id),
            partitions=1,
            flow=flow,
            policy=CommitPolicy.FULL,
            job_level=False,
            min_interval_s=0,
            max_attempts=3,
            task_attempts=1,
            clock=self.clock,
            freshness=freshness,
        )
        result = run(launch_here, settings)
        end_run(store, settings.epoch, clean=result.succeeded)
        return result

    def audit(self) -> AuditResult:
        return audit_store(self.store, ModelSource.provenance, deep=True)


def _flow(end: int, *stages: Stage) -> TaskFlow:
    source = ModelSource({name: ModelDataset({"0": end}) for name in NAMES})
    return TaskFlow(source, (Branch(FileSink.model_validate({"compression": "none"})),), stages)


@pytest.mark.parametrize("counts_reading", [False, True])
def test_records_rejected_twice_keep_the_epoch_of_the_run_that_read_them(tmp_path: Path, counts_reading: bool) -> None:
    """Upserts compare rows by epoch, because positions that count records are comparable within one epoch only."""
    job, wrong = _Job(tmp_path), Stage("wrong", _RejectsAll(), on_failure="divert")
    source = (_Counting if counts_reading else ModelSource)({"a": ModelDataset({"0": 6})})

    def epochs() -> list[tuple[int, ...]]:
        flow = _flow(6).with_source(source)
        state = job.store.bucket_log(job.store.bucket_of("a")).refresh().datasets["a"]
        planned = ReprocessSource(job.store.fs, job.roots.output, flow).plan_dataset(state)
        assert planned is not None
        return sorted(again.epochs for again in map(ReprocessedFiles.of, planned.work_units) if again is not None)

    first, second = (job.run(_flow(end, wrong), Freshness()).epoch for end in (3, 6))
    assert epochs() == ([(first,), (second,)] if counts_reading else [(first, second)])
    flow = _flow(6, wrong)
    again = job.run(replace(flow, source=ReprocessSource(job.store.fs, job.roots.output, flow)), Freshness())
    assert again.totals.records_rejected == 18
    last = job.run(_flow(9, wrong), Freshness()).epoch
    before = (first, second, again.epoch)
    assert epochs() == ([before, (last,)] if counts_reading else [(*before, last)])


def test_reprocessed_records_of_a_job_with_freshness_targets_are_published_once(tmp_path: Path) -> None:
    job = _Job(tmp_path)
    for end in (3, 6, 9):  # three error files of each dataset
        assert job.run(_flow(end, Stage("wrong", _RejectsAll(), on_failure="divert")), Freshness()).succeeded
    assert job.audit().rejected == 27
    repaired = _flow(9)
    for _ in range(6):
        errors = ReprocessSource(job.store.fs, job.roots.output, repaired)
        assert job.run(replace(repaired, source=errors)).succeeded
        result = job.audit()
        assert result.exact, (result.duplicates, result.rejected, result.records)
    assert result.rejected == 0
