"""Expire published files: find those that are too old, and plan the maintenance units that supersede them.

A unit has no range and no records. It is planned on the stored watermark and does not move it. Its attempt stages only
the tombstone that names the files, so that replay finishes a run that died. A later run deletes the files, once no
snapshot that readers may use shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.extract import Extract
from distcommit.core.interfaces.sink import AttemptIdentity, StagingArea
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Planned, Source, SourceState
from distcommit.core.ports import FileSystem
from distcommit.core.provenance import Provenance
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.core.work import ERRORS, MAIN_BRANCH, BranchResult, DatasetPlan, WorkUnit
from distcommit.decoding import from_json
from distcommit.pipeline.maintenance.input_records import KnownRecords
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.output import is_tombstone, published_folder
from distcommit.sinks.files.footer import Footer, read_footer
from distcommit.stores.folders.listing import files_below
from distcommit.stores.folders.tombstones import (
    RetiredFile,
    Tombstone,
    newest_replacements,
    read_tombstone,
    replacement_of,
    retired_by,
    stage_tombstone,
)

_PROPERTY = "retained"


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file.

    Attributes:
        path: below the output.
        footer: its footer.
        size_bytes: its size.
        end_ms: end of the period of its time folder, or else (as of all error files) the time it was written, in
            milliseconds since 1970; 0 if unknown.
    """

    path: str
    footer: Footer
    size_bytes: int
    end_ms: int


class Horizon(msgspec.Struct, frozen=True):
    """The expiry cutoff, stored as a property of a maintenance unit.

    Attributes:
        before_ms: a file whose `LiveFile.end_ms` is not later is expired; milliseconds since 1970.
        base: the dataset's done epoch when the unit was planned.
    """

    before_ms: int
    base: int = 0

    @classmethod
    def of(cls, unit: WorkUnit) -> Horizon | None:
        """Return the cutoff of a work unit; None if it does not expire files."""
        text = unit.properties.get(_PROPERTY)
        return None if text is None else from_json(text, cls)

    def is_past(self, file: LiveFile) -> bool:
        """Return whether a file is expired. A file of unknown age never is."""
        return 0 < file.end_ms <= self.before_ms


def _folder_end_ms(flow: TaskFlow, path: str, footer: Footer) -> int | None:
    """Return the end of the file's time folder, as the branch's sink reports it; None if it is in no time folder.

    `path` is below the dataset's folder. The folder of a branch is not a time folder, whatever its name.
    """
    if footer.kind == "rejected":
        return None  # error files are in no time folder
    name = footer.branch or MAIN_BRANCH
    if name != MAIN_BRANCH:
        path = path.removeprefix(f"{name}/")
    sink = next((branch.sink for branch in flow.branches if branch.name == name), flow.sinks[0])
    return sink.folder_end_ms(path)


@dataclass(frozen=True, slots=True)
class AgedDataset:
    """A dataset's published files, some of which may be expired.

    Attributes:
        fs: the output's file system.
        output: path of the job's output.
        dataset_urn: the dataset.
        done_epoch: files of newer epochs are ignored.
        flow: the job's task flow, whose sinks know the time folders.
    """

    fs: FileSystem
    output: str
    dataset_urn: str
    done_epoch: int
    flow: TaskFlow

    def stones(self) -> list[Tombstone]:
        """Return the dataset's tombstones. Raises as `live`."""
        beside = f"{self.output}/{published_folder(self.dataset_urn, ERRORS)}"
        names = [entry.name for entry in self.fs.list_folder(beside) if is_tombstone(entry.name)]
        return [read_tombstone(self.fs, f"{beside}/{name}") for name in names]

    def live(self) -> Iterator[LiveFile]:
        """Yield live files, error files included.

        Raises:
            DistcommitError, OSError: if a tombstone or footer cannot be read.
        """
        retired = retired_by(self.stones(), self.done_epoch)
        own = published_folder(self.dataset_urn)
        folders = [f"{self.output}/{folder}" for folder in (own, published_folder(self.dataset_urn, ERRORS))]
        for path in (path for folder in folders for path in files_below(self.fs, folder)):
            below = path.removeprefix(f"{self.output}/")
            if below in retired or is_tombstone(path):
                continue
            status, footer = self.fs.status(path), read_footer(self.fs, path)
            if status is None or footer is None:
                continue
            if footer.dataset_urn == self.dataset_urn and footer.epoch <= self.done_epoch:
                end_ms = _folder_end_ms(self.flow, below.removeprefix(f"{own}/"), footer)
                written_ms = -(-status.mtime_ns // 1_000_000)
                yield LiveFile(below, footer, status.size_bytes, written_ms if end_ms is None else end_ms)

    def past(self, horizon: Horizon) -> Iterator[LiveFile]:
        """Yield expired files. Raises as `live`."""
        return filter(horizon.is_past, self.live())

    def is_worn(self) -> bool:
        """Return whether the newest tombstone is an expiry tombstone and all files that it names are deleted.

        An empty tombstone then replaces it, so that runs no longer look for these files. A tombstone that names only
        its predecessor is not worn. Raises as `live`.
        """
        for stone in newest_replacements(self.stones(), self.done_epoch):
            named = [file.path for file in stone.files if not is_tombstone(file.path)]
            if stone.publish == "retain" and named:
                return all(self.fs.status(f"{self.output}/{path}") is None for path in named)
        return False


@dataclass(frozen=True, slots=True)
class RetainedFiles(Source):
    """A source of maintenance units for all idle datasets with expired files. It takes the place of the job's source.

    Attributes:
        fs: the output's file system.
        output: path of the job's output.
        flow: the job's task flow.
        before_ms: see `Horizon`.
    """

    fs: FileSystem
    output: str
    flow: TaskFlow
    before_ms: int

    @property
    def provenance(self) -> Provenance | None:  # type: ignore[override]
        return self.flow.source.provenance

    def extract_of(self, dataset_urn: str) -> Extract | None:
        return self.flow.source.extract_of(dataset_urn)

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        for urn, state in states.items():
            if not owned(urn) or state.status is not DatasetStatus.IDLE or state.watermark is None:
                continue
            aged, horizon = self.aged(urn, state.done_epoch), Horizon(self.before_ms, state.done_epoch)
            try:
                if next(aged.past(horizon), None) is not None or aged.is_worn():
                    yield _plan(urn, state.watermark, horizon)
            except (DistcommitError, OSError) as error:
                yield DatasetProblem(urn, str(error))

    def open(self) -> Extractor:
        return _AgedExtractor(self)

    def in_place(self) -> TaskFlow:
        """Return the job's flow with this source and without constructs: there are no records."""
        branches = tuple(replace(branch, stages=(), checks=()) for branch in self.flow.branches)
        return replace(self.flow.with_source(self), branches=branches, stages=())

    def aged(self, urn: str, done_epoch: int) -> AgedDataset:
        return AgedDataset(self.fs, self.output, urn, done_epoch, self.flow)


def _plan(urn: str, watermark: Watermark, horizon: Horizon) -> DatasetPlan:
    nothing = Watermark({}, watermark.incarnation)
    unit = WorkUnit("", urn, nothing, nothing, 1, {_PROPERTY: msgspec.json.encode(horizon).decode()})
    return DatasetPlan(urn, watermark, nothing, (unit,))


@dataclass(slots=True)
class _AgedExtractor(Extractor):
    source: RetainedFiles

    def extract(self, unit: WorkUnit) -> Extraction:
        return _AgedExtraction(self.source, unit)

    def close(self) -> None:
        return


@dataclass(slots=True)
class _AgedExtraction(Extraction):
    source: RetainedFiles
    unit: WorkUnit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def actual_high(self) -> Watermark:
        return self.unit.expected_high

    def bytes_read(self) -> int:
        return 0

    def staged_with(
        self, results: Sequence[BranchResult], area: StagingArea, identity: AttemptIdentity
    ) -> tuple[BranchResult, ...]:
        """Return the results with a staged tombstone that names the expired files and the previous replacement."""
        horizon = Horizon.of(self.unit)
        if horizon is None:
            return tuple(results)
        aged, known, files = self.source.aged(self.unit.dataset_urn, horizon.base), KnownRecords(), list[RetiredFile]()
        for past in aged.past(horizon):
            files.append(RetiredFile(past.path, past.size_bytes, "", past.footer.records))
            known.add(past.footer, retained=True)
        for stone in newest_replacements(aged.stones(), horizon.base):
            found = aged.fs.status(f"{aged.output}/{stone.path}")
            if found is None:
                raise FileNotFoundError(stone.path)
            files.append(RetiredFile(stone.path, found.size_bytes, "", 0))
            known.keep(stone.replaced)
        tombstone = replacement_of(identity, "retain", horizon.base, (), files, known.to_records())
        return (*results, BranchResult(ERRORS, self.source.flow.errors.name, (stage_tombstone(area, tombstone),)))
