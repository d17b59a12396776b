"""Error files fed again: which of a dataset's are live, the maintenance units that feed them, and the tombstone that
retires what was fed.

A maintenance unit has no range: it is planned on the watermark that is stored, and leaves it where it is. Its records
go through the flow as it is now, but only to the branch that had turned them away: in the others they are what they
were. Where the flow sends a record elsewhere by now, it stays an error of that branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from distcommit.core.errors import ConfigurationError, CorruptError, DistcommitError
from distcommit.core.interfaces.extract import Extract
from distcommit.core.interfaces.sink import AttemptIdentity, Filtered, StagingArea
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Planned, Source, SourceState
from distcommit.core.ports import FileSystem
from distcommit.core.provenance import Provenance
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.core.work import ERRORS, MAIN_BRANCH, BranchResult, DatasetPlan, SkippedRange, WorkUnit, errors_of
from distcommit.decoding import from_json
from distcommit.pipeline.branches.error_columns import given_records
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.output import is_tombstone, published_folder
from distcommit.sinks.files.footer import Footer, read_batches, read_footer, read_written_schema
from distcommit.sinks.files.offsets import OffsetSets, parsed
from distcommit.stores.folders.tombstones import (
    TOMBSTONE_VERSION,
    RetiredFile,
    Tombstone,
    read_tombstone,
    retired_by,
    stage_tombstone,
)
from distcommit.stores.folders.trees import files_below

_PROPERTY = "fed_again"


class FedAgain(msgspec.Struct, frozen=True):
    """What a maintenance unit feeds again, as a property of it.

    `branch`: the one that had turned the records away; empty: all. `branches`: all that there were when these were
    read, or with an empty `branch` all that there are. `base`: the done epoch that it was planned on. `epochs`: of the
    files; and of those that their records were in before, if these were reprocessed and rejected again, so that the
    first one is that of the run that had read the oldest record. `files`: live error files, by their paths below the
    output.
    """

    branch: str
    branches: tuple[str, ...]
    base: int
    epochs: tuple[int, ...]
    files: tuple[str, ...]

    @classmethod
    def of(cls, unit: WorkUnit) -> FedAgain | None:
        """What a work unit feeds again; None if it is one that reads from the source."""
        text = unit.properties.get(_PROPERTY)
        return None if text is None else from_json(text, cls)


def _live_errors(fs: FileSystem, output: str, state: DatasetState) -> Iterator[tuple[str, Footer]]:
    """A dataset's error files that are live and hold records, by their paths below the output.

    Raises:
        DistcommitError: if what says so can't be read.
    """
    paths = list(files_below(fs, f"{output}/{published_folder(state.dataset_urn, ERRORS)}"))
    stones = [read_tombstone(fs, path) for path in paths if is_tombstone(path)]
    retired = retired_by(stones, state.done_epoch)
    for path in paths:
        below = path.removeprefix(f"{output}/")
        if below in retired or is_tombstone(path):
            continue
        footer = read_footer(fs, path)
        is_ours = footer is not None and (footer.dataset_urn, footer.kind) == (state.dataset_urn, "rejected")
        if footer is not None and is_ours and footer.epoch <= state.done_epoch and footer.records:
            yield below, footer


def plan_again(fs: FileSystem, output: str, state: DatasetState, flow: TaskFlow) -> DatasetPlan:
    """The plan of feeding a dataset's live error files again: a maintenance unit for each branch that had turned
    records away, for each incarnation of the source, and for each epoch if positions count what is read.

    Raises:
        ConfigurationError: if there is nothing to feed, or the branch is not there any more.
        DistcommitError: if what is published can't be read.
    """
    if state.watermark is None:
        raise _nothing(state.dataset_urn, "no watermark")
    units = _units(fs, output, state, flow)
    if not units:
        raise _nothing(state.dataset_urn, "no error file that is live")
    return _plan_of(state, units)


def _units(fs: FileSystem, output: str, state: DatasetState, flow: TaskFlow) -> tuple[WorkUnit, ...]:
    """As `plan_again`; empty if there is nothing to feed."""
    names = tuple(branch.name for branch in flow.branches)
    counts_reading = flow.source.provenance is not None and flow.source.provenance.counts_reading
    groups: dict[tuple[str, str, tuple[str, ...], int], list[tuple[str, Footer]]] = {}
    for path, footer in _live_errors(fs, output, state):
        branch = "" if footer.branch == MAIN_BRANCH else footer.branch
        if branch and branch not in names:
            raise ConfigurationError(
                "an error file is of a branch that the job does not have",
                dataset=state.dataset_urn,
                path=path,
                expected=f"one of {', '.join(names)}",
                found=branch,
                todo="put the branch back into the job file",
            )
        read_in = min(_epochs(footer)) if counts_reading else 0  # positions are comparable within one epoch only
        key = footer.incarnation, branch, footer.branches if branch else names, read_in
        groups.setdefault(key, []).append((path, footer))
    return tuple(
        WorkUnit(
            "",
            state.dataset_urn,
            Watermark({}, incarnation),
            Watermark({}, incarnation),
            sum(footer.records for _, footer in files),
            {_PROPERTY: msgspec.json.encode(_fed_again(branch, branches, state.done_epoch, files)).decode()},
        )
        for (incarnation, branch, branches, _), files in groups.items()
    )


def _plan_of(state: DatasetState, units: tuple[WorkUnit, ...]) -> DatasetPlan:
    incarnation = state.watermark.incarnation if state.watermark else ""
    return DatasetPlan(state.dataset_urn, state.watermark, Watermark({}, incarnation), units)


def _fed_again(branch: str, branches: tuple[str, ...], base: int, files: Sequence[tuple[str, Footer]]) -> FedAgain:
    epochs = tuple(sorted({epoch for _, footer in files for epoch in _epochs(footer)}))
    return FedAgain(branch, branches, base, epochs, tuple(path for path, _ in files))


def _epochs(footer: Footer) -> tuple[int, ...]:
    return (footer.epoch, *footer.replaces)


def _nothing(urn: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        "there is nothing to reprocess of this dataset",
        dataset=urn,
        expected="records that were turned away (on_rejected: divert), and not fed again since",
        found=found,
        todo="nothing: look at `audit`, whose rejected records of a dataset are what can be reprocessed",
    )


@dataclass(frozen=True, slots=True)
class ErrorFiles(Source):
    """One dataset's live error files, or those of all datasets, in the place of the job's source.

    Attributes:
        fs: where
        output: the job's output is.
        dataset_urn: the dataset; empty: all that have any.
        flow: the job's.
    """

    fs: FileSystem
    output: str
    dataset_urn: str
    flow: TaskFlow

    @property
    def provenance(self) -> Provenance | None:  # type: ignore[override]
        return self.flow.source.provenance

    def extract_of(self, dataset_urn: str) -> Extract | None:
        return self.flow.source.extract_of(dataset_urn)

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        if not self.dataset_urn:
            yield from self._plan_all({urn: state for urn, state in states.items() if owned(urn)})
            return
        state = states.get(self.dataset_urn)
        if not owned(self.dataset_urn) or (state is not None and state.status is not DatasetStatus.IDLE):
            return
        try:
            yield plan_again(self.fs, self.output, state or DatasetState(self.dataset_urn), self.flow)
        except (DistcommitError, OSError) as error:
            yield DatasetProblem(self.dataset_urn, str(error))

    def _plan_all(self, states: Mapping[str, DatasetState]) -> Iterator[Planned]:
        for urn, state in states.items():
            if state.status is not DatasetStatus.IDLE or state.watermark is None:
                continue
            try:
                if units := _units(self.fs, self.output, state, self.flow):
                    yield _plan_of(state, units)
            except (DistcommitError, OSError) as error:
                yield DatasetProblem(urn, str(error))

    def open(self) -> Extractor:
        return _ErrorFilesExtractor(self)


@dataclass(slots=True)
class _ErrorFilesExtractor(Extractor):
    source: ErrorFiles

    def extract(self, unit: WorkUnit) -> Extraction:
        return _ErrorFilesExtraction(self.source, unit)

    def close(self) -> None:
        return


@dataclass(slots=True)
class _ErrorFilesExtraction(Extraction):
    """The records of a maintenance unit's files, as the source gave them."""

    source: ErrorFiles
    unit: WorkUnit
    _retired: list[RetiredFile] = field(default_factory=list)
    _footers: list[Footer] = field(default_factory=list)
    _bytes: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        again, fs = FedAgain.of(self.unit), self.source.fs
        for below in again.files if again is not None else ():
            path, records = f"{self.source.output}/{below}", 0
            footer, status = read_footer(fs, path), fs.status(path)
            if footer is None or status is None:
                raise FileNotFoundError(path)
            checksum, written = fs.checksum(path), read_written_schema(fs, path)
            for batch in read_batches(fs, path):
                records += batch.num_rows
                yield given_records(batch, written)
            if records != footer.records:
                raise CorruptError(
                    "an error file does not have the records that its footer says",
                    path=path,
                    expected=str(footer.records),
                    found=str(records),
                    todo="restore it from a backup",
                )
            self._bytes += status.size_bytes
            self._footers.append(footer)
            self._retired.append(RetiredFile(below, status.size_bytes, f"{checksum:016x}", records))

    def actual_high(self) -> Watermark:
        return self.unit.expected_high

    def bytes_read(self) -> int:
        return self._bytes

    def said_on(self) -> tuple[Filtered, Sequence[SkippedRange]]:
        positions: dict[str, OffsetSets] = {}
        counts: dict[str, int] = {}
        holes: list[SkippedRange] = []
        for footer in self._footers:
            for branch, text in footer.filtered.items():
                positions.setdefault(branch, OffsetSets()).update(parsed(text))
            for construct, count in footer.filtered_by.items():
                counts[construct] = counts.get(construct, 0) + count
            named = parsed(footer.holes)
            holes += [
                SkippedRange(partition, low, high, "the source has no record there", True, footer.incarnation)
                for partition in named.partitions()
                for low, high in named.ranges(partition)
            ]
        return Filtered({branch: sets.to_text() for branch, sets in positions.items()}, counts), holes

    def staged_with(
        self, results: Sequence[BranchResult], area: StagingArea, identity: AttemptIdentity
    ) -> tuple[BranchResult, ...]:
        """The results, with a staged tombstone beside the new error files that names what was read to its end."""
        again = FedAgain.of(self.unit)
        if again is None or not self._retired:
            return tuple(results)
        tombstone = Tombstone(
            version=TOMBSTONE_VERSION,
            dataset_urn=identity.dataset_urn,
            epoch=identity.epoch,
            run_id=identity.run_id,
            work_unit_id=identity.work_unit_id,
            attempt=identity.attempt,
            base=again.base,
            branch=again.branch,
            fed=sum(file.records for file in self._retired),
            written=sum(result.records_written for result in results),
            rejected=sum(result.records_diverted for result in results),
            files=tuple(self._retired),
        )
        staged, name = stage_tombstone(area, tombstone), errors_of(again.branch)
        if all(result.branch != name for result in results):
            return (*results, BranchResult(name, self.source.flow.errors.name, (staged,)))
        return tuple(
            replace(result, files=(*result.files, staged)) if result.branch == name else result for result in results
        )
