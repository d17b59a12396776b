"""Base class of sinks. Writers prepare output, and commit steps publish it.

A writer prepares plain data and staged files, which travel with the task state. Once a dataset is ready, its sink
returns the commit steps for the prepared output. All steps are sealed before the first one is executed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.interfaces.committer import OpensCommitter, SealRequest
from distcommit.core.interfaces.connection_hooks import Connected
from distcommit.core.interfaces.file_system import FileAccess, FileSystem
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink_metrics import SinkMetrics
from distcommit.core.interfaces.source_table import Extract
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
from distcommit.core.task_properties import RecordsProperties
from distcommit.core.work_units import MAIN_BRANCH, SkippedRange, StagedFile

if TYPE_CHECKING:
    import pyarrow as pa

    from distcommit.core.interfaces.constructs import RowChecker

Publish = Literal["append", "replace", "replace_partitions"]
"""How a run's output relates to the published output of the dataset: added to it, replacing all of it, or replacing the
files in the same folders."""

BY_DATASET = "dataset"
"""The value of `grouped_by` of a sink without commit groups: each dataset is its own group."""


@dataclass(frozen=True, slots=True)
class AttemptIdentity:
    """The attempt at a work unit that a writer belongs to.

    Attributes:
        run_id: the run.
        epoch: the run's epoch.
        dataset_urn: the dataset.
        work_unit_id: the work unit.
        attempt: a fresh UUID, unique to this attempt.
        branch: the branch.
        task: the number of the run's ingest task, from 0. It may differ in a retry: no name may depend on it.
        tasks: the number of ingest tasks of the run.
        store_id: the id of the job's store, as in `CommitterContext`; empty if the flow does not provide it.
        metrics: counters of the sink that the writer increases.
    """

    run_id: str
    epoch: int
    dataset_urn: str
    work_unit_id: str
    attempt: str
    branch: str = MAIN_BRANCH
    task: int = 0
    tasks: int = 1
    store_id: str = ""
    metrics: SinkMetrics = field(default_factory=SinkMetrics, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StagingArea:
    """An empty folder below `paths.staging` that belongs to one attempt.

    The engine syncs the files in it before the attempt counts, and deletes them once the dataset's commit is known to
    be done or the attempt is aborted.

    Attributes:
        fs: the file system of the job's folders, which may be remote.
        folder: the folder, absolute in the file system's own form.
        prefix: the folder relative to the staging root: the prefix of staged paths.
        output_root: the absolute folder that files are published below.
    """

    fs: FileSystem
    folder: str
    prefix: str
    output_root: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of an attempt's records and the flow that processes them.

    Attributes:
        provenance: the columns with each record's partition and offset; None if the source has none.
        incarnation: the object that the source's positions count in (a Kafka topic id), as in the watermark.
        branches: all branches of the flow, without error branches.
        makes_several: whether one input record may become several records.
        replaces: if records are reprocessed, the epochs of the files that are read again, and earlier epochs of their
            records.
        publish: how the output relates to the published output.
        extract: the table that the records are an extract of, if the source knows. A writer stores it in its infos.
        schema: the schema of all records that the writer will receive; None if it is known only with the first batch.
    """

    provenance: Provenance | None = None
    incarnation: str = ""
    branches: Sequence[str] = (MAIN_BRANCH,)
    makes_several: bool = False
    replaces: Sequence[int] = ()
    publish: Publish = "append"
    extract: Extract | None = None
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class Origins:
    """The origin of each record of a batch: arrays as long as the batch, without nulls.

    Attributes:
        partitions: the source partition of the input record, as text or integers.
        offsets: the offset in that partition. Records made of one input record share it.
    """

    partitions: pa.Array
    offsets: pa.Array


@dataclass(frozen=True, slots=True)
class Filtered:
    """Input records of an attempt that were filtered.

    Attributes:
        positions: the filtered positions of each branch that has any, as text of `OffsetSets`.
        counts: the number of filtered records by construct. Behind a fork, a construct's name begins with the branch.
    """

    positions: Mapping[str, str]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The output that a writer has prepared; empty if it received no records.

    Attributes:
        infos: plain data for a committer: numbers of at most 64 bits, text, bytes, booleans, None, and lists and dicts
            of them. They are stored in the commit log, so keep them small.
        files: closed files in the staging area with their destinations.
        holes: the reported holes that the commit log must keep.
        content_sum: the content sum of the files' records, 16 hexadecimal digits; empty if it is not known.
    """

    infos: Sequence[Any] = ()
    files: Sequence[StagedFile] = ()
    holes: Sequence[SkippedRange] = ()
    content_sum: str = ""


class SinkWriter(RecordsProperties, ABC):
    """A writer of the records of one attempt at one work unit. Not shared between threads.

    Readers of the target must not see the output before the commit, unless the sink has no commit steps. After an
    error, only `abort` is called. An attempt may die at any moment without `abort`. Its output may never be committed,
    because another attempt may win.
    """

    groups_schemas: ClassVar[bool] = False
    """Whether the target needs no order between records of different schemas, such as a file for each schema. Then each
    call of `write` has records of one schema. If not, records arrive in source order, in several calls where schemas
    alternate.
    """

    @property
    def prepares_in_background(self) -> bool:
        """Return whether `prepare_commit` would wait for a network now, and may run in another thread, concurrently
        with other writers of the task.
        """
        return False

    @abstractmethod
    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        """Write records of the dataset.

        Args:
            batch: the records.
            origins: the origins of the records. None if the source's provenance columns are still in the batch, or if
                the source has none.
        """

    def note_holes(self, holes: Iterable[SkippedRange]) -> None:
        """Receive positions without a record as the source is read. A writer with a ledger or footers stores them with
        its records or returns them in `Prepared.holes`. The default ignores them."""

    def note_filtered(self, filtered: Filtered) -> bool:
        """Receive, before `prepare_commit`, the input records that were filtered in this or another branch.

        One of an attempt's writers stores them with its output, so that an audit can distinguish filtered records from
        lost ones. Returns whether this writer does. The default does not.
        """
        return False

    @abstractmethod
    def prepare_commit(self) -> Prepared:
        """End the attempt. Everything that a committer in another process needs is then durable or in staging."""

    @abstractmethod
    def abort(self) -> None:
        """Close connections and files after an error. The attempt counts as failed."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """Optional abilities of a sink. See also `OpensCommitter.prepares_at_target`.

    Attributes:
        exactly_once: whether the sink commits exactly once. A sink without commit steps does not
            (`sinks.base.writer_sink`).
        at_least_once: whether its steps may be executed before they are sealed. If two attempts run, both are then
            published, under different names.
        audit: whether its published output can be audited and the job's store rebuilt from it, by its files or by its
            committer's `ledger`.
        can_roll_back: whether its committer can roll back a commit. Branches whose sink cannot are committed last.
        files: whether its published files have the names and footers of type `files`, in the folder of the dataset and
            branch. Snapshot reads and expiry need them.
        atomic: whether readers of the target see a commit of a dataset and branch completely or not at all. If not, a
            killed run may leave a visible part until the next run.
    """

    exactly_once: bool = True
    at_least_once: bool = False
    audit: bool = False
    can_roll_back: bool = True
    files: bool = False
    atomic: bool = True


class Sink(Connected, ABC):
    """The destination of a branch's records. Picklable: it is sent to the executors, which write and commit.

    A sink with a committer derives from `CommitterSink`, which adds the commit step for it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name stored with prepared output. It must not change while sequences of it may be pending."""

    @property
    def abilities(self) -> Abilities:
        """Return the sink's optional abilities."""
        return Abilities()

    @property
    def file_access(self) -> FileAccess | None:
        """Return the owner and mode of published files, if the file system supports them; None for its defaults."""
        return None

    @property
    def publisher(self) -> Publish:
        """Return how a run's output relates to the published output. A value other than `append` requires
        `abilities.files`, because the engine records replacements in the output."""
        return "append"

    @property
    def rejection_check(self) -> RowChecker | None:
        """Return the row checker that rejects records that the sink cannot write; None if it can write all records."""
        return None

    @property
    def replaces_at_target(self) -> bool:
        """Return whether each commit replaces all rows of the dataset at the target."""
        return False

    @property
    def preview_records(self) -> int:
        """Return how many first records of each dataset a preview shows before the published output and its folders are
        deleted. 0: the sink is not a preview.
        """
        return 0

    def folder_end_ms(self, path: str) -> int | None:
        """Return the end of the period of a published file's time folder, in milliseconds since 1970.

        `path` is the file's path below the folder of its dataset or branch. None if folders are not named by time.
        """
        return None

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return the settings that locate the proof of a commit, such as a table's name, by their names in section
        `sink` of the job file. After the first commit a store rejects other values.
        """
        return {}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        """Return where readers find the output of a dataset and branch (a folder, a table, a topic), in words; empty if
        unknown. `output` is the job's `paths.output`."""
        return ""

    @property
    def grouped_by(self) -> str:
        """Return the rule of `commit_group` in words that name every setting it depends on, such as `table, prefix 3`.

        After the first commit a store rejects another rule. With `dataset`, each dataset is its own group and
        `commit_group` is not called.
        """
        return BY_DATASET

    def commit_group(self, dataset_urn: str) -> str:
        """Return the group that the dataset is committed with, such as the table that several datasets share.

        Datasets of one group are in one bucket: one record seals them, and the committer receives them together. Must
        be a pure function of the URN and the settings that `grouped_by` names, equal in every process (unlike `hash()`
        of a text).

        Returns:
            text of 1 to 1,024 bytes.
        """
        return dataset_urn

    def check_schema(self, schema: pa.Schema) -> None:
        """Check the columns of records before any is read: all columns, or if some are unknown, the known ones with all
        `required_columns`. Database writers call it again for each new schema. The default checks nothing.

        Raises:
            ConfigurationError: if records with these columns cannot be written, naming the column.
        """

    def required_columns(self) -> Sequence[str] | None:
        """Return the columns that the settings require in all records, such as keys. Once their types are known,
        `check_schema` is called with all known columns; if None, only once all columns are known."""
        return None

    def announce(self, datasets: Sequence[str], schema: pa.Schema, run_id: str) -> None:
        """Receive the datasets that a task is about to write, if their columns are known before a record is read.

        Optional: a sink can create missing objects at the target for many datasets at once. Writers still handle
        missing objects, and an error of this call recurs for its own dataset.

        Args:
            datasets: the URNs, each once.
            schema: the schema of all of their records.
            run_id: the run, as in `AttemptIdentity`.
        """

    def look_up(self, datasets: Sequence[str], run_id: str) -> None:
        """Receive, in place of `announce`, the datasets that a task may be about to write.

        Called if the columns are not known before a record is read, or if a fork may leave datasets without records.
        Optional: a sink can query the target for many datasets at once, but must create nothing. Arguments as for
        `announce`.
        """

    @abstractmethod
    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        """Open a writer for one attempt at one work unit.

        Args:
            attempt: the attempt.
            area: the attempt's staging folder.
            origin: the source of the records.
        """

    @abstractmethod
    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        """Return the commit steps for the prepared output, in execution order; none if there is nothing to commit.

        Must be a pure function that reads and changes nothing: the same request gives the same steps.
        """

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        """Return the topics, tables and folders that a commit of the dataset writes to, without the job's own folders.

        A job whose source reads one of them is rejected. The default returns none.
        """
        return ()

    def is_in_system(self, fact: SourceFact) -> bool:
        """Return whether the sink writes to the system with this property, such as a Kafka cluster's id.

        May connect. The default returns False.

        Raises:
            TransientError: if the system is unreachable.
        """
        return False

    @property
    def writes_to(self) -> str:
        """Return, in words, the objects that only one branch of a fork may write to; empty for none."""
        return ""

    @property
    def committers(self) -> Mapping[str, OpensCommitter]:
        """Return the openers of the committers of this sink's steps, by the name that is stored with the steps."""
        return {}


class SinkSettings(Sink):
    """A sink whose settings are the section `sink` of a job file."""

    type: str
