"""Maintenance units: work units on published files instead of the source.

A kind of maintenance is a class in `core.records.maintenance_units`, with a source and an extraction.

A unit has no range, and does not move the watermark. Its attempt stages a tombstone, so that replay finishes a dead
run; a later run deletes the superseded files once no snapshot shows them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_values

import pyarrow as pa
from msgspec.structs import replace

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, StagingArea
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Planned, Source, SourceState
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import BranchResult, DatasetPlan, WorkUnit, error_branch_of
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.folders.tombstones import Tombstone, stage_tombstone


@dataclass(frozen=True, slots=True)
class MaintenanceSource(Source):
    """A source of maintenance units. It takes the place of the job's source for one run.

    Attributes:
        fs: the output's file system.
        output: path of the job's output.
        flow: the job's task flow.
    """

    fs: FileSystem
    output: str
    flow: TaskFlow

    @property
    def provenance(self) -> Provenance | None:  # type: ignore[override]
        return self.flow.source.provenance

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        for state in self.candidates(states):
            if owned(state.dataset_urn) and state.status is DatasetStatus.IDLE:
                try:
                    if planned := self.plan_dataset(state):
                        yield planned
                except (DistcommitError, OSError) as error:
                    yield DatasetProblem(state.dataset_urn, str(error))

    def open(self) -> Extractor:
        return _MaintenanceExtractor(self)

    def candidates(self, states: SourceState) -> Iterable[DatasetState]:
        """Return the datasets that may need maintenance."""
        return (state for _, state in states.items())

    def flow_without_constructs(self) -> TaskFlow:
        branches = tuple(with_values(branch, stages=(), checks=()) for branch in self.flow.branches)
        return with_values(self.flow.with_source(self), branches=branches, stages=())

    @abstractmethod
    def plan_dataset(self, state: DatasetState) -> DatasetPlan | None:
        """Return an idle dataset's plan, or None."""

    @abstractmethod
    def extraction(self, unit: WorkUnit) -> Extraction:
        """Return a unit's extraction."""


def plan_of(state: DatasetState, *units: WorkUnit) -> DatasetPlan:
    incarnation = state.watermark.incarnation if state.watermark else ""
    return DatasetPlan(state.dataset_urn, state.watermark, Watermark({}, incarnation), units)


class MaintenanceExtraction(Extraction):
    """The extraction of a maintenance unit, by default without records."""

    def __init__(self, flow: TaskFlow, unit: WorkUnit) -> None:
        self.flow, self.unit = flow, unit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def actual_high(self) -> Watermark:
        return self.unit.expected_high

    def bytes_read(self) -> int:
        return 0

    @abstractmethod
    def tombstone(self, results: Sequence[BranchResult], identity: AttemptIdentity) -> Tombstone | None:
        """Return the tombstone of superseded files, or None."""

    def with_maintenance_files(
        self, results: Sequence[BranchResult], area: StagingArea, identity: AttemptIdentity
    ) -> tuple[BranchResult, ...]:
        """Add the staged tombstone, beside its branch's error files."""
        tombstone = self.tombstone(results, identity)
        if tombstone is None:
            return tuple(results)
        staged, name = stage_tombstone(area, tombstone), error_branch_of(tombstone.branch)
        if all(result.branch != name for result in results):
            return (*results, BranchResult(name, self.flow.errors.name, (staged,)))
        return tuple(
            replace(result, files=(*result.files, staged)) if result.branch == name else result for result in results
        )


@dataclass(slots=True)
class _MaintenanceExtractor(Extractor):
    source: MaintenanceSource

    def extract(self, unit: WorkUnit) -> Extraction:
        return self.source.extraction(unit)

    def close(self) -> None:
        return
