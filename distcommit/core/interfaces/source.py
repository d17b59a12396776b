"""Base classes of sources: what plans datasets, and what reads their records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import Converter
from distcommit.core.interfaces.extract import Extract
from distcommit.core.interfaces.sink import AttemptIdentity, Filtered, StagingArea
from distcommit.core.interfaces.targets import Target
from distcommit.core.provenance import Provenance
from distcommit.core.records.fixed_settings import Pin, SourceFact
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work import BranchResult, DatasetPlan, SkippedRange, WorkUnit

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DatasetProblem:
    """A dataset that could not be planned, or not all of it: it is skipped with its reason and keeps its watermark.

    `remedy`: what lets it go on, as words of a command of distcommit without the job's file: its name first, then
    options as one word each, `--set=KEY=VALUE`, and arguments. `status` shows it; empty where only a person can tell.
    """

    dataset_urn: str
    error: str
    remedy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A dataset that the source leaves out by a rule of its own, though the job's settings seem to ask for it. That is
    told and no problem: `reason` says which rule, and how to include it. With another `kind`, a note about a dataset
    that is planned."""

    dataset_urn: str
    reason: str
    kind: str = "passed over"


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a dataset is behind its source: in records, and in seconds since the first of them that is not read came
    about; None where the source can't tell. `problem`: why."""

    dataset_urn: str
    records: int | None = None
    seconds: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GroupPositions:
    """The next positions of a group of readers, by dataset and partition, in the names that the job has for them;
    `missing`: partitions of the job for which the group has none, in words."""

    datasets: dict[str, dict[str, Position]]
    missing: Sequence[str] = ()


Planned = DatasetPlan | DatasetProblem | SourceFact | PassedOver
"""What a source says as it plans."""


class Extraction(ABC):
    """The records of one work unit, read once from front to back."""

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The records, in the order of the source within each partition.

        Raises:
            SourceError: if the source refused or lost something; the work unit fails.
            TransientError: if trying again may help.
        """

    @abstractmethod
    def actual_high(self) -> Watermark:
        """How far was really read: exactly what the batches hold that were handed out so far, and the holes among
        them; never past the expected high watermark. It is asked after the iteration; where that was left early, as at
        a limit; and with policy `partial` between any two batches, since what an attempt that fails has read is
        committed as far as this says.

        Raises:
            SourceError: if there is no such position here; at the end the work unit fails, and in between nothing is
                kept of an attempt that fails now.
            TransientError: if trying again may help.
        """

    @abstractmethod
    def bytes_read(self) -> int:
        """Payload bytes read so far."""

    def said_on(self) -> tuple[Filtered | None, Sequence[SkippedRange]]:
        """What files say that were read and are going to be retired, so that the new ones have to say it from now on:
        input records of which nothing was written, and holes. The default has read none; asked after the iteration."""
        return None, ()

    def staged_with(
        self, results: Sequence[BranchResult], area: StagingArea, identity: AttemptIdentity
    ) -> tuple[BranchResult, ...]:
        """What all branches have prepared, with what the work unit itself stages beside it: a maintenance unit the
        tombstone of what goes. The default stages nothing."""
        return tuple(results)

    def holes(self) -> Sequence[SkippedRange]:
        """Positions below the actual high watermark, as it is now, that hold no record, as the source has shown by
        going on behind them: those since the last call. The audit takes any other position without a record for a gap.

        In Kafka: control records of transactions, aborted batches, and what compaction has removed.
        """
        return ()


class Extractor(ABC):
    """Reads the work units of one task attempt, one after the other. Not shared between threads."""

    def announce(self, units: Sequence[WorkUnit]) -> None:  # noqa: B027 - optional hook
        """Tells which work units are coming, in their order, so that reading ahead is possible."""

    @abstractmethod
    def extract(self, unit: WorkUnit) -> Extraction:
        """Starts reading a work unit."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of connections. Safe to call twice."""


class SourceState(dict[str, DatasetState]):
    """What is stored of some datasets, by URN, for planning: the states that the runs before have left.

    A state has the watermark; and, if the last run could not read the dataset, in `unread` how many runs in a row that
    was, why, and where what was not read was to end.
    """

    def anywhere(self, urn: str) -> DatasetState | None:
        """What is stored of any dataset of the job, whoever plans it: it may cost a look at the store.

        Raises:
            SourceError: if that can't be read.
        """
        return self.get(urn)

    def to_read_again(self, urn: str) -> Watermark | None:
        """Up to where a dataset is to be planned, by partition, as that could not be read and the job reads it again by
        itself before anything newer (`task.retry_across_runs`). It begins at the watermark, as ever. None: up to the
        source's newest end, and so are partitions that are not named."""
        return None

    @property
    def records_per_dataset(self) -> int:
        """How many positions of one dataset are to be planned at most, so that one with a backlog keeps no other
        waiting; 0 for all. A source that can't tell plans what it has."""
        return 0


def negative_positions(datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
    """Yield a problem for each position below 0."""
    for urn, positions in datasets.items():
        for partition, position in positions.items():
            if isinstance(position, int | float) and position < 0:
                yield f"{urn!r}: {position!r}, for partition {partition!r}, is negative"


def kept_incarnations(states: Mapping[str, DatasetState], now: Mapping[str, str]) -> dict[str, str]:
    """Return the incarnations of the stored watermarks; of a dataset without one the incarnation that is there `now`.

    If that is not known, it is the one of the watermark that was set to null: a run compares it with the source again.

    Raises:
        ConfigurationError: if the source of a dataset with a watermark was recreated: nothing was written.
    """
    found: dict[str, str] = {}
    for urn, state in states.items():
        there, before = now.get(urn, ""), state.reached.incarnation if state.reached else ""
        found[urn] = before or there if state.watermark is not None else there or before
        if state.watermark is not None and before and there not in ("", before):
            raise ConfigurationError(
                "the source of this dataset was recreated since its watermark was stored",
                dataset=urn,
                expected=f"incarnation {before}, which the stored watermark counts in",
                found=f"incarnation {there}",
                todo="set the watermark to null first; positions that are set after that count in the new one. Nothing"
                " was written",
            )
    return found


class Source(ABC):
    """Where data comes from. Picklable: it is sent to the executors, which plan and read."""

    provenance: ClassVar[Provenance | None] = None
    """How records name their origin; None if the source has no integer offsets (the audit then counts only)."""

    @property
    def batch_schema(self) -> pa.Schema | None:
        """The schema of all batches that it reads, so that constructs can be checked before any record is read; None
        if only the records can tell, or it has several."""
        return None

    def pins(self) -> Mapping[str, Pin]:
        """Settings that decide which dataset a record belongs to, or what positions count in, by their names in the
        section `source` of the job file. A store is refused with others than it was filled with."""
        return {}

    @property
    def named_by(self) -> str:
        """The setting of `pins` that decides how datasets are named and may become another one by `distcommit
        store rebucket`, which asks `named_now` then; empty if none may."""
        return ""

    def named_now(self, dataset_urn: str, partition: str) -> str:
        """The dataset that a source partition belongs to, by these settings, which was read as one of another name
        under another value of the setting `named_by`: by its own name if that is what it is called. A pure function of
        these and that setting."""
        return dataset_urn

    def selects(self, dataset_urn: str, partition: str) -> bool:
        """Whether the settings ask for that partition as one of that dataset, as far as they can tell; nothing is
        connected to. The default takes any."""
        return True

    def reads(self, target: Target) -> bool:
        """Return whether the settings select this topic, table or folder, or a part of it. Records that a sink writes
        there would be read, and written, again and again. Nothing is connected to. The default selects none."""
        return False

    @property
    def apart_hint(self) -> str:
        """What a user can set if `reads` takes another table for one that is read; empty if there is nothing."""
        return ""

    @property
    def location(self) -> str:
        """Where its tables are, for systems that keep lineage, as `kafka://HOST:PORT`; empty if it does not say."""
        return ""

    def extract_of(self, dataset_urn: str) -> Extract | None:
        """The table that a dataset is an extract of, as far as the settings say it; None if they say nothing. Nothing
        is connected to. What a work unit has of its own (`core.interfaces.extract.with_extract`) wins."""
        return None

    @abstractmethod
    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        """Plans the datasets for which `owned` says yes, one at a time.

        A plan that can't be stored or carried out, or of what can't name a dataset, is told, and the others go on;
        `owned` may be asked about any name. A `SourceFact` among the plans is pinned as `pins` are, and compared before
        anything of the plan counts.

        Args:
            owned: whether a dataset URN belongs to the caller's buckets.
            states: what is stored of the datasets of those buckets; a dataset that is absent is new. Datasets that are
                not idle, or are stopped, are not to be planned.

        Raises:
            SourceError: if the source as a whole can't be used.
        """

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterable[str]:
        """What keeps these from being positions in this source, one text each that begins with the dataset's name in
        quotes (`repr`); called before a person sets them.

        The default refuses numbers below 0. It need not reach the source: what can't be asked about now is no problem.

        Args:
            datasets: positions by partition, by dataset URN.
        """
        return negative_positions(datasets)

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        """Return the incarnation that positions of each dataset count in if an operator sets them. One that is left out
        counts in what the next plan finds.

        The default keeps that of the stored watermark. A source that can be recreated asks which one is there, and
        returns `kept_incarnations`. A source whose incarnations name its settings leaves out what these no longer name.

        Args:
            states: what is stored of the datasets; a dataset never heard of has no watermark.

        Raises:
            ConfigurationError: if positions of a dataset can't be set before its watermark is null.
        """
        return kept_incarnations(states, {})

    def group_positions(self, group: str) -> GroupPositions:
        """Where others stand that read the same, by the name that the source itself knows them by (a Kafka consumer
        group). They are only asked about.

        Raises:
            ConfigurationError: if the source keeps no such positions, as the default says.
            SourceError: if it can't be asked.
        """
        raise ConfigurationError(
            "this source keeps no positions of consumer groups",
            found=type(self).__name__,
            todo="give them as a file: distcommit migrate import-watermarks JOB.yaml --from POSITIONS.csv",
        )

    def lags(self, states: Mapping[str, DatasetState]) -> Iterable[Lag]:
        """How far these datasets are behind, by URN; asked when a person wants to know it. The default can't tell.

        Raises:
            SourceError: if the source as a whole can't be asked.
        """
        return ()

    @abstractmethod
    def open(self) -> Extractor:
        """An extractor for one task attempt."""


class SourceSettings(Source):
    """A source that is the section `source` of a job file, of that type."""

    @property
    def named_datasets(self) -> Sequence[str]:
        """The datasets that the settings name one by one; those that a pattern selects are not among them."""
        return ()

    @property
    def reads_again(self) -> bool:
        """Whether it may plan by `SourceState.to_read_again`; if not, `task.retry_across_runs` is refused."""
        return True

    @property
    def reads_whole(self) -> bool:
        """Whether a work unit can end nowhere but at its end; if so, `limits.seconds` is refused."""
        return False

    @property
    def is_snapshot(self) -> bool:
        """Whether each run reads all of each dataset anew; if so, `sink.publish` has to be `replace`."""
        return False

    @property
    def batch_column(self) -> str:
        """Of a source that a streaming query feeds by `Job.on_batch`, and that reads nothing by itself: the column of
        micro-batches that names each row's dataset. Empty of all others."""
        return ""

    @property
    def turns_away(self) -> Converter | None:
        """What turns those of its records away that it could not read, before all other constructs; None if it gives
        none out."""
        return None

    staged_by: ClassVar[str] = ""
    """Of a source that needs the driver's Spark before a run plans: what asks it, as `module:function`. Called with
    the Spark session, the source and the job's store it gives a context manager; what that gives is the source that the
    run reads for as long as it lasts. Sources themselves do not know Spark."""

    is_imported: ClassVar[bool] = False
    """Whether a class that the settings name is imported before the source can answer anything. A job file is read
    without that."""

    type: str
