"""Maintenance units: work units that read or supersede a dataset's published files instead of reading the source.

A maintenance unit has no range. It is planned on the stored watermark and does not move it. Its attempt stages a
tombstone that names the superseded files, so that replay finishes a run that died. A later run deletes the files, once
no snapshot that readers may use shows them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import msgspec
import pyarrow as pa

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.extract import Extract
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Planned, Source, SourceState
from distcommit.core.ports import FileSystem
from distcommit.core.provenance import Provenance
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.core.work import ERRORS, DatasetPlan, WorkUnit
from distcommit.decoding import from_json
from distcommit.pipeline.maintenance.superseded_records import SupersededRecords
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.output import is_tombstone, published_folder
from distcommit.sinks.files.footer import Footer, read_footer
from distcommit.stores.folders.tombstones import (
    ReplacedRecords,
    RetiredFile,
    Tombstone,
    newest_replacements,
    read_tombstone,
    retired_by,
)
from distcommit.stores.folders.trees import files_below


class MaintenanceProperty(msgspec.Struct, frozen=True):
    """What a maintenance unit does, stored as a property of the work unit under `key`."""

    key: ClassVar[str]

    @classmethod
    def of(cls, unit: WorkUnit) -> Self | None:
        """Return the property of a work unit; None if it is not a unit of this kind."""
        text = unit.properties.get(cls.key)
        return None if text is None else from_json(text, cls)

    def unit(self, urn: str, incarnation: str, records: int) -> WorkUnit:
        """Return a maintenance unit with this property. Without an id: the planner numbers units."""
        nothing = Watermark({}, incarnation)
        return WorkUnit("", urn, nothing, nothing, records, {self.key: msgspec.json.encode(self).decode()})


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file.

    Attributes:
        path: below the output.
        footer: its footer.
        size_bytes: its size.
        end_ms: when its records ended at the latest, milliseconds since 1970; 0 if unknown.
    """

    path: str
    footer: Footer
    size_bytes: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """A dataset's published files.

    Attributes:
        fs: the output's file system.
        output: path of the job's output.
        dataset_urn: the dataset.
        done_epoch: files of newer epochs are ignored.
    """

    fs: FileSystem
    output: str
    dataset_urn: str
    done_epoch: int

    def tombstones(self) -> list[Tombstone]:
        """Return the dataset's tombstones. Raises as `live_in`."""
        folder = f"{self.output}/{published_folder(self.dataset_urn, ERRORS)}"
        names = [entry.name for entry in self.fs.list_folder(folder) if is_tombstone(entry.name)]
        return [read_tombstone(self.fs, f"{folder}/{name}") for name in names]

    def replacements(self) -> list[Tombstone]:
        """Return the newest tombstones that are replacements. Raises as `live_in`."""
        return list(newest_replacements(self.tombstones(), self.done_epoch))

    def live_in(self, *branches: str) -> Iterator[LiveFile]:
        """Yield the live files of these branches; each with the time at which it was written as its end.

        Raises:
            DistcommitError, OSError: if a tombstone or footer cannot be read.
        """
        retired = retired_by(self.tombstones(), self.done_epoch)
        folders = [f"{self.output}/{published_folder(self.dataset_urn, branch)}" for branch in branches]
        for path in (path for folder in folders for path in files_below(self.fs, folder)):
            below = path.removeprefix(f"{self.output}/")
            if below in retired or is_tombstone(path):
                continue
            status, footer = self.fs.status(path), read_footer(self.fs, path)
            if status is None or footer is None:
                continue
            if footer.dataset_urn == self.dataset_urn and footer.epoch <= self.done_epoch:
                yield LiveFile(below, footer, status.size_bytes, -(-status.mtime_ns // 1_000_000))

    def superseded(
        self, files: Iterable[LiveFile], *, retained: bool
    ) -> tuple[list[RetiredFile], list[ReplacedRecords]]:
        """Return the files and records that a new replacement names: these files, then the replacements before it.

        Args:
            files: live files of the dataset.
            retained: whether they expired, so that nothing takes their place.

        Raises:
            FileNotFoundError: if a replacement is gone.
            DistcommitError, OSError: as `live_in`.
        """
        known, retired = SupersededRecords(), list[RetiredFile]()
        for file in files:
            retired.append(RetiredFile(file.path, file.size_bytes, "", file.footer.records))
            known.add(file.footer, retained=retained)
        for stone in self.replacements():
            status = self.fs.status(f"{self.output}/{stone.path}")
            if status is None:
                raise FileNotFoundError(stone.path)
            retired.append(RetiredFile(stone.path, status.size_bytes, "", 0))
            known.keep(stone.replaced)
        return retired, known.to_records()


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

    def extract_of(self, dataset_urn: str) -> Extract | None:
        return self.flow.source.extract_of(dataset_urn)

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

    def __init__(self, unit: WorkUnit) -> None:
        self.unit = unit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def actual_high(self) -> Watermark:
        return self.unit.expected_high

    def bytes_read(self) -> int:
        return 0


@dataclass(slots=True)
class _MaintenanceExtractor(Extractor):
    source: MaintenanceSource

    def extract(self, unit: WorkUnit) -> Extraction:
        return self.source.extraction(unit)

    def close(self) -> None:
        return
