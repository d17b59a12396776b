"""Published files that are too old to be kept: which these are, and the maintenance units that retire them.

A unit has no range and no records: it is planned on the watermark that is stored, and leaves it where it is. All that
an attempt at it stages is the tombstone that names the files, so that a run which dies in the midst is finished as any
other; the files are deleted once no cut that is kept shows them.
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
from distcommit.stores.folders.tombstones import (
    RetiredFile,
    Tombstone,
    newest_replacements,
    read_tombstone,
    replacement_of,
    retired_by,
    stage_tombstone,
)
from distcommit.stores.folders.trees import files_below

_PROPERTY = "retained"


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that is live: its path below the output, its footer, its size, and when its records had ended at the
    latest, milliseconds since 1970: as its time folder does, or else (as of all error files) as it was written; 0 if
    neither tells."""

    path: str
    footer: Footer
    size_bytes: int
    end_ms: int


class Horizon(msgspec.Struct, frozen=True):
    """What is too old, as a property of a maintenance unit.

    `before_ms`, milliseconds since 1970: files are too old if all that their time folder stands for is before; where
    they are in none, if they were written before. `base`: the done epoch that the unit was planned on.
    """

    before_ms: int
    base: int = 0

    @classmethod
    def of(cls, unit: WorkUnit) -> Horizon | None:
        """That of a work unit; None if it is another one."""
        text = unit.properties.get(_PROPERTY)
        return None if text is None else from_json(text, cls)

    def is_past(self, file: LiveFile) -> bool:
        """Whether a file is too old. One of which nobody knows how old it is never is."""
        return 0 < file.end_ms <= self.before_ms


def _folder_end_ms(flow: TaskFlow, path: str, footer: Footer) -> int | None:
    """As the branch's sink says. `path`: below the dataset's folder. Neither that nor a branch's is a folder by time,
    whatever its name."""
    if footer.kind == "rejected":
        return None  # in no time folder, whatever the job's sinks are
    named = footer.branch or MAIN_BRANCH
    if named != MAIN_BRANCH:
        path = path.removeprefix(f"{named}/")
    sink = next((each.sink for each in flow.branches if each.name == named), flow.sinks[0])
    return sink.folder_end_ms(path)


@dataclass(frozen=True, slots=True)
class AgedDataset:
    """A dataset's published files, of which some may be too old.

    Attributes:
        fs: where
        output: the job's output is.
        dataset_urn: the dataset.
        done_epoch: what newer epochs have published does not count.
        flow: the job's, whose sinks say how folders are named by time.
    """

    fs: FileSystem
    output: str
    dataset_urn: str
    done_epoch: int
    flow: TaskFlow

    def stones(self) -> list[Tombstone]:
        """Its tombstones. Raises as `past`."""
        beside = f"{self.output}/{published_folder(self.dataset_urn, ERRORS)}"
        names = [entry.name for entry in self.fs.list_folder(beside) if is_tombstone(entry.name)]
        return [read_tombstone(self.fs, f"{beside}/{name}") for name in names]

    def live(self) -> Iterator[LiveFile]:
        """Live files, those of what was turned away among them.

        Raises:
            DistcommitError, OSError: if what says so can't be read.
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
        """Those that are too old. Raises as `live`."""
        return filter(horizon.is_past, self.live())

    def is_worn(self) -> bool:
        """Whether the newest tombstone is retention's, and all that it names are files that are gone. One that names
        just the tombstone before it takes its place, else each run would look for all of these for ever. Raises as
        `live`."""
        for stone in newest_replacements(self.stones(), self.done_epoch):
            named = [file.path for file in stone.files if not is_tombstone(file.path)]
            if stone.publish == "retain" and named:
                return all(self.fs.status(f"{self.output}/{path}") is None for path in named)
        return False


@dataclass(frozen=True, slots=True)
class RetainedFiles(Source):
    """All idle datasets of which something is too old, in the place of the job's source.

    Attributes:
        fs: where
        output: the job's output is.
        flow: the job's.
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
        """The job's flow with this source, and with no construct that would look at records: there are none."""
        branches = tuple(replace(each, stages=(), checks=()) for each in self.flow.branches)
        return replace(self.flow.with_source(self), branches=branches, stages=())

    def aged(self, urn: str, done_epoch: int) -> AgedDataset:
        """A dataset of the job."""
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
    """Of a maintenance unit that retires what is too old: no records."""

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
        """The results, with a staged tombstone that names what is too old, and the replacement before it."""
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
