"""Base classes of sources, which plan datasets and read their records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.connection_hooks import ConnectedSource, NamedCode
from distcommit.core.interfaces.constructs import Converter
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import AttemptIdentity, Filtered, StagingArea
from distcommit.core.interfaces.source_table import Extract
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.previous_run import WorkUnitResult
from distcommit.core.task_properties import RecordsProperties
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import BranchResult, DatasetPlan, SkippedRange, WorkUnit

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DatasetProblem:
    """A dataset that the source could not plan completely. Its watermark stays, and the run reports the reason.

    Attributes:
        dataset_urn: URN of the dataset.
        error: why the source could not plan it, for the report.
        remedy: a distcommit command without the job file: its name, then options as one word each (`--set=KEY=VALUE`)
            and arguments. `status` shows it; empty if only an operator can decide.
    """

    dataset_urn: str
    error: str
    remedy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedDataset:
    """A dataset that the job's settings select and a rule of the source skips. This is not a problem.

    Attributes:
        dataset_urn: URN of the dataset.
        reason: the rule, and how to include the dataset.
        kind: the kind of this note. If it is not the default, the note is about a planned dataset.
    """

    dataset_urn: str
    reason: str
    kind: str = "passed over"


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a dataset is behind its source.

    Attributes:
        dataset_urn: URN of the dataset.
        records: number of unread records; None if unknown.
        seconds: age of the first unread record in seconds; None if unknown.
        problem: why the lag is unknown, or may be larger; empty if it is known.
    """

    dataset_urn: str
    records: int | None = None
    seconds: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GroupPositions:
    """The positions of a consumer group in the partitions of the job.

    Attributes:
        datasets: next position to read, by dataset URN and partition.
        missing: descriptions of partitions of the job for which the group has no position; empty if it has all.
    """

    datasets: dict[str, dict[str, Position]]
    missing: Sequence[str] = ()


Planned = DatasetPlan | DatasetProblem | SourceFact | SkippedDataset | DeferredRecords


class Extraction(RecordsProperties, ABC):
    """One sequential read of a work unit's records."""

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, in source order within each partition.

        Raises:
            SourceError: if the source rejected a request or lost data; the work unit fails.
            TransientError: if another attempt may succeed.
        """

    @abstractmethod
    def actual_high(self) -> Watermark:
        """Return the end, exclusive, of the batches yielded so far and of the holes among them. It is never past the
        expected high watermark.

        Called after the iteration, also if a limit ended the iteration early. With policy `partial` also called between
        two batches, because the records that a failed attempt has read are committed up to this position.

        Raises:
            SourceError: if there is no such position. At the end, the work unit fails. Between batches, an attempt that
                fails now commits nothing.
            TransientError: if another attempt may succeed.
        """

    @abstractmethod
    def bytes_read(self) -> int:
        """Return the payload bytes read so far."""

    def problems(self) -> tuple[int, Sequence[str]]:
        """Return the number of unreadable inputs, and texts that name them. Called once, after the iteration."""
        return 0, ()

    def superseded_notes(self) -> tuple[Filtered | None, Sequence[SkippedRange]]:
        """Return, after the iteration, the filtered records and holes that superseded files record. The replacing files
        must record them again. The default returns none."""
        return None, ()

    def with_maintenance_files(
        self, results: Sequence[BranchResult], area: StagingArea, identity: AttemptIdentity
    ) -> tuple[BranchResult, ...]:
        """Return the results of all branches plus files that the work unit itself stages, such as a tombstone."""
        return tuple(results)

    def holes(self) -> Sequence[SkippedRange]:
        """Return the positions without a record below the current actual high watermark, since the last call.

        Later records prove a hole. In Kafka, control records of transactions, aborted batches and compacted records
        leave holes. The audit reports any other position without a record as a gap.
        """
        return ()


class Extractor(ABC):
    """A reader of the work units of one task attempt, one after the other. Not shared between threads."""

    def announce(self, units: Sequence[WorkUnit]) -> None:  # noqa: B027 - optional hook
        """Receive the next work units in order, so that the extractor can read ahead."""

    @abstractmethod
    def extract(self, unit: WorkUnit) -> Extraction:
        """Start reading a work unit."""

    @abstractmethod
    def close(self) -> None:
        """Close connections. Safe to call twice."""


class SourceState(dict[str, DatasetState]):
    """Stored states of datasets by URN, as earlier runs left them, for planning.

    A state has the dataset's watermark. If the last run could not read the dataset, `read_failure` has the number of
    failed runs in a row, the reason and the planned end of the unread partitions.
    """

    @property
    def previous_work_units(self) -> dict[str, tuple[WorkUnitResult, ...]]:
        """Return the results of each dataset's work units in its previous run, by URN, with recorded properties."""
        return {urn: state.previous_run.work_units for urn, state in self.items() if state.previous_run is not None}

    def anywhere(self, urn: str) -> DatasetState | None:
        """Return the stored state of a dataset of any bucket. May read the store; raises SourceError if that fails."""
        return self.get(urn)

    def to_read_again(self, urn: str) -> Watermark | None:
        """Return the end, by partition, of the range that an earlier run failed to read and that must be planned first
        (`task.retry_across_runs`). If it is None or lacks a partition, plan to the newest end."""
        return None

    @property
    def records_per_dataset(self) -> int:
        """Return how many positions of one dataset to plan at most, so that a backlog does not delay other datasets; 0
        for all. A source that cannot count positions plans everything."""
        return 0


def negative_positions(datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
    """Yield a problem for each position below 0."""
    for urn, positions in datasets.items():
        for partition, position in positions.items():
            if isinstance(position, int | float) and position < 0:
                yield f"{urn!r}: {position!r}, for partition {partition!r}, is negative"


def stored_incarnations(states: Mapping[str, DatasetState], now: Mapping[str, str]) -> dict[str, str]:
    """Return the incarnations of the stored watermarks; for a dataset without a watermark, the incarnation in `now`.

    If `now` lacks the dataset, the incarnation of its last watermark is returned, which the next run compares with the
    source.

    Raises:
        ConfigurationError: if the source of a dataset with a watermark was recreated. Nothing was written.
    """
    incarnations: dict[str, str] = {}
    for urn, state in states.items():
        present, before = now.get(urn, ""), state.reached.incarnation if state.reached else ""
        incarnations[urn] = before or present if state.watermark is not None else present or before
        if state.watermark is not None and before and present not in ("", before):
            raise ConfigurationError(
                "the source of this dataset was recreated since its watermark was stored",
                id="SOURCE_RECREATED",
                dataset=urn,
                expected=f"incarnation {before}, which the stored watermark counts in",
                found=f"incarnation {present}",
                todo="set the watermark to null first; positions that are set afterwards count in the new incarnation",
            )
    return incarnations


class Source(ConnectedSource, ABC):
    """The origin of a job's data. Picklable: it is sent to the executors, which plan and read."""

    provenance: ClassVar[Provenance | None] = None
    """The columns that name each record's origin; None if the source has no integer offsets. The audit then only
    counts."""

    @property
    def batch_schema(self) -> pa.Schema | None:
        """Return the schema of all batches, so that constructs are checked before any record is read; None if only the
        records determine the schema, or if schemas differ."""
        return None

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return the settings that assign records to datasets or define what positions count in, by their names in
        section `source` of the job file. After the first commit a store rejects other values."""
        return {}

    @property
    def named_by(self) -> str:
        """Return the setting of `fixed_settings` that names datasets and that `distcommit store rebucket` may change,
        using `current_name`; empty if there is none."""
        return ""

    def current_name(self, dataset_urn: str, partition: str) -> str:
        """Return the dataset that a source partition belongs to under the current settings. Must be a pure function.

        Args:
            dataset_urn: the dataset of the partition under another value of the setting `named_by`.
            partition: the partition.
        """
        return dataset_urn

    def selects(self, dataset_urn: str, partition: str) -> bool:
        """Return whether the settings may select the partition as part of the dataset. Must not connect."""
        return True

    def reads(self, target: Target) -> bool:
        """Return whether the settings select this topic, table or folder, or a part of it. Must not connect. The
        default returns False.

        A job that reads its own target would process its output again and again.
        """
        return False

    @property
    def false_match_hint(self) -> str:
        """Return the setting to change if `reads` mistakes another table for one of the source; empty for none."""
        return ""

    @property
    def location(self) -> str:
        """Return the location of the tables for lineage systems, as `kafka://HOST:PORT`; empty if it is unknown."""
        return ""

    def extract_of(self, dataset_urn: str) -> Extract | None:
        """Return the table that a dataset is an extract of, by the settings; None if they do not name it. A work unit's
        own extract (`core.interfaces.source_table.with_extract`) overrides it."""
        return None

    @abstractmethod
    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        """Plan the datasets for which `owned` is true, one at a time.

        A plan that cannot be stored or executed, or an invalid dataset name, is reported as a problem, and other
        datasets continue. The plans may include a `SourceFact`. If it differs from the recorded one, the run fails
        before any plan takes effect.

        Args:
            owned: returns whether a dataset URN belongs to the caller's buckets; accepts any name.
            states: the stored states of the datasets of those buckets; an absent dataset is new. Datasets that are not
                idle, or are stopped, must not be planned.

        Raises:
            SourceError: if the source as a whole is unusable.
        """

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterable[str]:
        """Return the reasons why an operator cannot set these positions (by dataset URN and partition). Each text
        begins with the dataset's name in quotes (`repr`).

        The default rejects negative numbers. The source need not be reachable: a position that cannot be checked now is
        accepted.
        """
        return negative_positions(datasets)

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        """Return the incarnation of each dataset's positions if an operator sets them. An absent dataset gets the
        incarnation that the next plan finds.

        The default keeps the incarnation of the stored watermark. A source that can be recreated reads the current one
        and returns `stored_incarnations`. A source whose incarnations name its settings omits those that are no longer
        named.

        Args:
            states: the stored states; an unknown dataset has no watermark.

        Raises:
            ConfigurationError: if the dataset's watermark must be set to null first.
        """
        return stored_incarnations(states, {})

    def group_positions(self, group: str) -> GroupPositions:
        """Return the positions of a consumer group of the source's system, without changing them.

        Raises:
            ConfigurationError: if the source has no consumer groups, as the default.
            SourceError: if the system cannot be queried.
        """
        raise ConfigurationError(
            "the source has no consumer groups",
            id="GROUP_POSITIONS_UNSUPPORTED",
            found=type(self).__name__,
            todo="pass the positions as a file: distcommit migrate import-watermarks JOB.yaml --from POSITIONS.csv",
        )

    def lags(self, states: Mapping[str, DatasetState]) -> Iterable[Lag]:
        """Return how far these datasets are behind, on an operator's request. The default returns none. Raises
        SourceError if the source as a whole cannot be queried."""
        return ()

    @abstractmethod
    def open(self) -> Extractor:
        """Return an extractor for one task attempt."""


class SourceSettings(NamedCode, Source):
    """A source whose settings are the section `source` of a job file."""

    @property
    def named_datasets(self) -> Sequence[str]:
        """Return the datasets that the settings name individually, without those that a pattern selects."""
        return ()

    @property
    def supports_retry_ranges(self) -> bool:
        """Return whether plans respect `SourceState.to_read_again`. If not, `task.retry_across_runs` is rejected."""
        return True

    @property
    def reads_whole_units(self) -> bool:
        """Return whether a work unit can only end at its planned end. If so, `limits.seconds` is rejected."""
        return False

    @property
    def is_snapshot(self) -> bool:
        """Return whether each run reads every dataset from scratch, so that `sink.publish` must be `replace`."""
        return False

    @property
    def batch_column(self) -> str:
        """Return the column of micro-batches that names each row's dataset; empty unless a streaming query feeds the
        source through `Job.on_batch`."""
        return ""

    @property
    def rejection_check(self) -> Converter | None:
        """Return the converter that rejects unreadable records before all other constructs; None if none can occur."""
        return None

    @property
    def diverts_unreadable(self) -> bool:
        """Return whether records that `rejection_check` rejects go to the error branch, whatever `on_rejected` is."""
        return False

    def with_on_rejected(self, on_rejected: Literal["fail", "divert"]) -> SourceSettings:
        """Return the source as it reads in a job with this setting `on_rejected`. The default returns itself."""
        return self

    staged_by: ClassVar[str] = ""
    """For a source that needs the driver's Spark session before planning: a function, as `module:function`. It receives
    the session, the source and the job's store, and returns a context manager with the source that the run reads."""

    is_imported: ClassVar[bool] = False
    """Whether the source must import a class that the settings name. A job file is read without this import."""

    type: str
