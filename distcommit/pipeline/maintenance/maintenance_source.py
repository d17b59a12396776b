"""Maintenance units: work units that read or supersede a dataset's published files instead of reading the source.

A kind of maintenance is a class in `core.records.maintenance_units`, with a source that plans its units and an
extraction that reads old files (if any) and names the superseded ones.

A maintenance unit has no range. It is planned on the stored watermark and does not move it. Its attempt stages a
tombstone that names the superseded files, so that replay finishes a run that died. A later run deletes the files, once
no snapshot that readers may use shows them.
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
        """Return the states of the datasets that may need maintenance."""
        return (state for _, state in states.items())

    def flow_without_constructs(self) -> TaskFlow:
        """Return the job's flow with this source and without constructs, for units whose records are not converted."""
        branches = tuple(with_values(branch, stages=(), checks=()) for branch in self.flow.branches)
        return with_values(self.flow.with_source(self), branches=branches, stages=())

    @abstractmethod
    def plan_dataset(self, state: DatasetState) -> DatasetPlan | None:
        """Return the plan of an idle dataset; None if there is nothing to do."""

    @abstractmethod
    def extraction(self, unit: WorkUnit) -> Extraction:
        """Return the extraction of a maintenance unit."""


def plan_of(state: DatasetState, *units: WorkUnit) -> DatasetPlan:
    """Return a plan that leaves the stored watermark where it is."""
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
        """Return the tombstone of the superseded files; None if there are none."""

    def with_maintenance_files(
        self, results: Sequence[BranchResult], area: StagingArea, identity: AttemptIdentity
    ) -> tuple[BranchResult, ...]:
        """Return the results with the staged tombstone, beside the error files of its branch."""
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
