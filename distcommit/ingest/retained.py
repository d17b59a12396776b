"""Published files that are too old to be kept: which these are, and the maintenance units that retire them.

A unit has no range and no records: it is planned on the watermark that is stored, and leaves it where it is. Who seals
it stages the tombstone that names the files (`engine.replacing`), so that a run which dies in the midst is finished as
any other; they are deleted once no cut that is kept needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from distcommit.ingest.task_flow import TaskFlow
from distcommit.model.errors import DistcommitError
from distcommit.model.extract import Extract
from distcommit.model.log_records import DatasetState, DatasetStatus
from distcommit.model.ports import FileStatus, FileSystem
from distcommit.model.source import DatasetProblem, Extraction, Extractor, Planned, Provenance, Source
from distcommit.model.urn import folder_of
from distcommit.model.watermark import Watermark
from distcommit.model.work import MAIN_BRANCH, DatasetPlan, WorkUnit
from distcommit.protocol.paths import REJECTED_FOLDER, is_tombstone
from distcommit.sinks.files.footer import Footer, read_footer
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.time_folders import TimePartition, folder_end_ms
from distcommit.stores.listing import files_below
from distcommit.stores.tombstones import read_tombstone, retired_by

_PROPERTY = "retained_before_ms"


@dataclass(frozen=True, slots=True)
class PastFile:
    """A file that is too old: its path below the output, its footer, and what the file system says of it."""

    path: str
    footer: Footer
    status: FileStatus


@dataclass(frozen=True, slots=True)
class Horizon:
    """What is too old in a job.

    Attributes:
        flow: the job's, whose sinks say how folders are named by time.
        before_ms: milliseconds since 1970: files are too old if all that their time folder stands for is before; where
            they are in none, if they were written before.
    """

    flow: TaskFlow
    before_ms: int

    def is_past(self, path: str, branch: str, status: FileStatus) -> bool:
        """Whether a file of a branch, by its path below the output, is too old. One without any time never is."""
        end_ms = self._folder_end_ms(path, branch)
        if end_ms is None:
            return 0 < status.mtime_ns < self.before_ms * 1_000_000
        return end_ms <= self.before_ms

    def _folder_end_ms(self, path: str, branch: str) -> int | None:
        sinks = {each.name: each.sink for each in self.flow.branches}
        sink = sinks.get(branch) if len(sinks) > 1 or branch in sinks else next(iter(sinks.values()))
        if not isinstance(sink, FileSink):
            return None
        levels = sink.partitions
        folders = path.split("/")[:-1][-len(levels) :] if levels else []
        for level, folder in zip(levels, folders, strict=False):
            if isinstance(level, TimePartition):
                return folder_end_ms(folder, level)
        return None

    @classmethod
    def of(cls, units: Iterable[WorkUnit], flow: TaskFlow) -> Horizon | None:
        """That of a dataset's work units; None if these read from the source."""
        found = next((unit.properties[_PROPERTY] for unit in units if _PROPERTY in unit.properties), None)
        return None if found is None else cls(flow, int(found))


def past_files(fs: FileSystem, output: str, state: DatasetState, horizon: Horizon) -> Iterator[PastFile]:
    """A dataset's live files that are too old; what was turned away is not among them.

    Raises:
        DistcommitError, OSError: if what says so can't be read.
    """
    folder = folder_of(state.dataset_urn)
    beside = f"{output}/{REJECTED_FOLDER}/{folder}"
    stones = [read_tombstone(fs, f"{beside}/{e.name}") for e in fs.list_folder(beside) if is_tombstone(e.name)]
    retired = retired_by(stones, state.done_epoch)
    for path in files_below(fs, f"{output}/{folder}"):
        below = path.removeprefix(f"{output}/")
        if below in retired:
            continue
        status, footer = fs.status(path), read_footer(fs, path)
        if status is None or footer is None:
            continue
        is_ours = footer.dataset_urn == state.dataset_urn and footer.epoch <= state.done_epoch
        if is_ours and horizon.is_past(below, footer.branch or MAIN_BRANCH, status):
            yield PastFile(below, footer, status)


@dataclass(frozen=True, slots=True)
class RetainedFiles(Source):
    """All idle datasets of which something is too old, in the place of the job's source.

    Attributes:
        fs: where
        output: the job's output is.
        horizon: what is too old.
    """

    fs: FileSystem
    output: str
    horizon: Horizon

    @property
    def provenance(self) -> Provenance | None:  # type: ignore[override]
        return self.horizon.flow.source.provenance

    def extract_of(self, dataset_urn: str) -> Extract | None:
        return self.horizon.flow.source.extract_of(dataset_urn)

    def plan(self, owned: Callable[[str], bool], states: Mapping[str, DatasetState]) -> Iterator[Planned]:
        for urn, state in states.items():
            if not owned(urn) or state.status is not DatasetStatus.IDLE or state.watermark is None:
                continue
            try:
                if next(past_files(self.fs, self.output, state, self.horizon), None) is not None:
                    yield _plan(urn, state.watermark, self.horizon.before_ms)
            except (DistcommitError, OSError) as error:
                yield DatasetProblem(urn, str(error))

    def open(self) -> Extractor:
        return _NothingExtractor()

    def in_place_of(self, flow: TaskFlow) -> TaskFlow:
        """The flow with this source, and with no construct that would look at records: there are none."""
        branches = tuple(replace(each, stages=(), checks=()) for each in flow.branches)
        return replace(flow.with_source(self), branches=branches, stages=())


def _plan(urn: str, watermark: Watermark, before_ms: int) -> DatasetPlan:
    nothing = Watermark({}, watermark.incarnation)
    unit = WorkUnit("", urn, nothing, nothing, 1, {_PROPERTY: str(before_ms)})
    return DatasetPlan(urn, watermark, nothing, (unit,))


class _NothingExtractor(Extractor):
    def extract(self, unit: WorkUnit) -> Extraction:
        return _NothingExtraction(unit)

    def close(self) -> None:
        return


@dataclass(slots=True)
class _NothingExtraction(Extraction):
    unit: WorkUnit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def actual_high(self) -> Watermark:
        return self.unit.expected_high

    def bytes_read(self) -> int:
        return 0
