"""Base class of sinks: where records go. Writers prepare, commit steps make visible.

What a writer prepares is plain data and staged files, which travel with the task state. Once a dataset is ready, its
sink says which commit steps come of it; they are sealed before the first of them is executed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distcommit.core.interfaces.committer import OpensCommitter
from distcommit.core.interfaces.extract import Extract
from distcommit.core.interfaces.steps import CommitStep, StepContext
from distcommit.core.interfaces.targets import Target
from distcommit.core.ports import FileAccess, FileSystem
from distcommit.core.provenance import Provenance
from distcommit.core.records.fixed_settings import Pin, SourceFact
from distcommit.core.work import MAIN_BRANCH, BranchResult, SkippedRange, StagedFile

if TYPE_CHECKING:
    import pyarrow as pa

    from distcommit.core.interfaces.constructs import RowChecker

Publish = Literal["append", "replace", "replace_partitions"]
"""How what a run publishes of a dataset stands to what is published already: beside it; in its place; or in the place
of what is in the same folders."""

BY_DATASET = "dataset"
"""How datasets are grouped where no sink says another: each by itself."""


@dataclass(frozen=True, slots=True)
class AttemptIdentity:
    """Which attempt at which work unit writes, and of how many tasks.

    `attempt` is unique to the call that makes it (a fresh uuid). `task` of `tasks`: which of the run's ingest tasks it
    is in, from 0 on. A work unit that is read again may be in another one, so that no name at a target may rest on it.
    `store_id`: of the job's store, as committers are told it; empty if the flow does not say.
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


@dataclass(frozen=True, slots=True)
class StagingArea:
    """An empty folder of an attempt's own below `paths.staging`, and the output beside it.

    A writer may put files into it, and need not sync them: that is done before the attempt counts. They are deleted
    once the dataset's commit is known to be done, or the attempt to have lost.

    Attributes:
        fs: the file system of the job's folders, which need not be the local one.
        folder: the folder, absolute in the file system's own form.
        prefix: the same, relative to the staging root: how paths of staged files begin.
        output_root: the folder that files are published below, absolute.
    """

    fs: FileSystem
    folder: str
    prefix: str
    output_root: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an attempt's records come from, and what the flow makes of them.

    Attributes:
        provenance: the columns with each record's partition and offset; None if the source has none.
        incarnation: what the source's positions count in (a Kafka topic id), as in the watermark.
        branches: all branches that records go to, without those of errors.
        makes_several: whether several records may have been made of one.
        replaces: the epochs of published files whose records are fed again, and which these take the place of; and of
            those that the records were in before.
        publish: how what is read stands to what is published already.
        extract: the table that they are an extract of, if the source knows; a writer tells its committer by its infos.
    """

    provenance: Provenance | None = None
    incarnation: str = ""
    branches: Sequence[str] = (MAIN_BRANCH,)
    makes_several: bool = False
    replaces: Sequence[int] = ()
    publish: Publish = "append"
    extract: Extract | None = None


@dataclass(frozen=True, slots=True)
class Origins:
    """Where each record of a batch came from: arrays as long as the batch, without nulls.

    Attributes:
        partitions: the source partition of the input record, as text or integers.
        offsets: its offset there. Several records may have come of one, and then have the same.
    """

    partitions: pa.Array
    offsets: pa.Array


@dataclass(frozen=True, slots=True)
class Filtered:
    """What became of input records of an attempt of which nothing was written in a branch, on purpose.

    Attributes:
        positions: by branch, which they are: text of `OffsetSets`, of branches that have any.
        counts: by construct, how many it has taken out; of a construct behind a fork with its branch in front.
    """

    positions: Mapping[str, str]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a writer has prepared: its commit infos, files and holes; nothing if it was given no records.

    Attributes:
        infos: plain data for a committer: numbers of at most 64 bits, text, bytes, booleans, None, and lists and dicts
            of them. They are stored in the commit log, so keep them small.
        files: closed files in the staging area, and where each is to be published.
        holes: those that the commit log is to keep, of the ones that the writer was told.
        content_sum: what the records of the files come to, as 16 hexadecimal digits; empty if nobody knows.
    """

    infos: Sequence[Any] = ()
    files: Sequence[StagedFile] = ()
    holes: Sequence[SkippedRange] = ()
    content_sum: str = ""


class SinkWriter(ABC):
    """Takes the records of one attempt at one work unit. Not shared between threads.

    `prepares_apart`: as it is now, `prepare_commit` waits for a network and may be called in another thread, while
    other writers of the task are at work.

    `groups_schemas`: whether the order of records with different schemas does not matter to the target, as where each
    file has one schema. Then records of one schema come together, batch by batch. Else all come in source order, in
    several calls where schemas alternate.

    Nothing it does is visible to readers of the target, unless its sink has a writer alone. After an error only `abort`
    is called. An attempt may die at any moment without `abort`, and what it has prepared may never be committed:
    another attempt may win.
    """

    groups_schemas: ClassVar[bool] = False

    @property
    def prepares_apart(self) -> bool:
        return False

    @abstractmethod
    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        """Takes records for the dataset.

        Args:
            batch: the records.
            origins: where they came from; None where the source's provenance columns say it, as nothing stands between
                source and writer, or where the source has none.
        """

    def note_holes(self, holes: Iterable[SkippedRange]) -> None:  # noqa: B027 - optional hook
        """Told of positions at which the source has no records, as it is read past them; by default they are forgotten.

        What somebody is to know them by later is kept beside the records, or comes back in `Prepared.holes`.
        """

    def note_filtered(self, filtered: Filtered) -> bool:
        """Told, right before `prepare_commit`, of input records that nothing was written of: not here, or not in
        another branch. One of an attempt's writers keeps it with what it has written, so that an audit can tell them
        from lost ones; whether this one does. The default does not."""
        return False

    @abstractmethod
    def prepare_commit(self) -> Prepared:
        """Ends the attempt: all that a committer in another process needs is durable, or in the staging area."""

    @abstractmethod
    def abort(self) -> None:
        """Lets go of connections and files after an error; the attempt counts as failed."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a sink can do beside committing exactly once. Where it stages is no question: each writer gets an area; and
    whether its attempts leave anything elsewhere is its committer's to say (`OpensCommitter.discards`).

    Attributes:
        exactly_once: whether it does that. One that does not has no commit steps: its records are visible as they are
            written (`sinks.base.writer_sink`).
        at_least_once: its steps may be executed without being written ahead; of two attempts that nobody chose
            between, both are then published, and none is taken for the other.
        audit: what it has published can be audited, and the job's store be rebuilt from it: by its files, or by its
            committer's `ledger`.
        can_be_taken_back: its committer can take back what is committed. Of a dataset's branches those that can't are
            committed last, so that what another one refuses is not there for good.
        files: what it publishes are files of the job's output, named and with footers as those of type `files`, in the
            folder of the dataset and branch: readers open them by cuts, and retention takes the old ones.
        atomic: readers of the target see all that is committed of a dataset and branch, or nothing of it. Else they may
            see a part while it is being committed, which a killed run leaves until the next one.
    """

    exactly_once: bool = True
    at_least_once: bool = False
    audit: bool = False
    can_be_taken_back: bool = True
    files: bool = False
    atomic: bool = True


@dataclass(frozen=True, slots=True)
class SealRequest:
    """What the winning attempts of one run prepared for a branch of a dataset. One per dataset, branch and epoch; later
    runs have higher epochs.

    Attributes:
        results: what each of them prepared, in the order of its work units.
        whole: for each, whether every staged folder of it holds exactly its files, all for one folder of the output and
            under their final names.
        bases: as in the request that a committer gets of it.
        attempts: the ids of the attempts, in the order of the results.
    """

    dataset_urn: str
    epoch: int
    branch: str
    results: Sequence[BranchResult]
    whole: Sequence[bool]
    bases: tuple[int, ...] = ()
    attempts: tuple[str, ...] = ()


class Sink(ABC):
    """Where records go. Picklable: it is sent to the executors, which write and commit.

    A sink with a committer of its own derives from `CommitterSink`, which is this with the commit step it takes.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Stored with what is prepared; it stays the same as long as sequences of this sink may be pending."""

    @property
    def abilities(self) -> Abilities:
        """What it can do beside committing exactly once."""
        return Abilities()

    @property
    def file_access(self) -> FileAccess | None:
        """Owner and mode that published files get, which not all places have; None: as the file system sets them."""
        return None

    @property
    def publisher(self) -> Publish:
        """How what a run publishes stands to what is there. Another than `append` goes with `abilities.files`: the
        engine says in the output what files have taken the place of others."""
        return "append"

    @property
    def turns_away(self) -> RowChecker | None:
        """Return the check of records that the sink can't take, which are rejected as by a row checker of the job."""
        return None

    @property
    def replaces_at_target(self) -> bool:
        """Whether each commit puts what its run has read in the place of all that the target has of the dataset."""
        return False

    @property
    def shown_records(self) -> int:
        """Of a sink for trying a job out: how many of each dataset's first records are shown before all that the run
        has published is thrown away, with its folders; 0: what it publishes stays."""
        return 0

    def folder_end_ms(self, path: str) -> int | None:
        """When the time had ended that a published file's folder stands for, milliseconds since 1970; None where
        folders are not by time. `path`: of the file, below the folder of its dataset, or of its branch in there."""
        return None

    def pins(self) -> Mapping[str, Pin]:
        """Settings that decide where the proof of a commit is, such as a table's name, by their names in the section
        `sink` of the job file. A store is refused with others than it was filled with."""
        return {}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        """Where a reader finds what is published of a dataset in that branch, in words for people: a folder, a table, a
        topic. Empty if the sink does not say. `output`: the job's `paths.output`."""
        return ""

    @property
    def grouped_by(self) -> str:
        """What `commit_group` goes by, in words that name every setting it depends on, such as `table, prefix 3`. It is
        pinned: a store is refused with another rule than it was filled with. `dataset`: each dataset is by itself, and
        `commit_group` is not asked."""
        return BY_DATASET

    def commit_group(self, dataset_urn: str) -> str:
        """What the dataset is committed with, such as the table that several datasets go to. Datasets of one group are
        in one bucket: they are sealed by one record and given to the committer together.

        A pure function of the URN and of what `grouped_by` names: the same in every process, whatever is planned today
        (`hash()` of a text is not).

        Returns:
            text of 1 to 1,024 bytes.
        """
        return dataset_urn

    def check_schema(self, schema: pa.Schema) -> None:  # noqa: B027 - optional hook
        """Asked before any record is read, where the schema of what is written is known by then.

        Raises:
            ConfigurationError: if such records can't be written, naming the column. The default does not.
        """

    def asked_columns(self) -> Sequence[str] | None:
        """The columns that its settings ask for in all records, such as keys. Where not all columns are known before a
        record is read, `check_schema` is asked with those that are, these among them, and has to do with that. None,
        the default: it is asked where all are known, and not else."""
        return None

    def announce(self, datasets: Sequence[str], schema: pa.Schema, run_id: str) -> None:  # noqa: B027 - optional hook
        """Told which datasets' records a task is about to write, where their columns are known before a record is read,
        so that what is missing at the target can be made for many at once. Nothing needs to be done: writers meet what
        is still missing, and what fails here they meet again, each by itself.

        Args:
            datasets: their URNs, each once.
            schema: of all of their records.
            run_id: of the run whose task it is, as writers are told it.
        """

    def look_up(self, datasets: Sequence[str], run_id: str) -> None:  # noqa: B027 - optional hook
        """Told in place of `announce`, which datasets' records a task may be about to write, where their columns are
        not known before a record is read, or a fork may send none of some: so that the target can be asked for many at
        once. Nothing is made there, and as above nothing needs to be done.

        Args:
            datasets: their URNs, each once.
            run_id: as above.
        """

    @abstractmethod
    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        """A writer for one attempt at one work unit.

        Args:
            attempt: whose records they are.
            area: where it may put files.
            origin: where the records come from.
        """

    @abstractmethod
    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        """The commit steps that what was prepared comes to, in the order they are executed; none if it is nothing.

        Whoever asks with the same request gets the same steps. Nothing is looked at or changed.
        """

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        """Return the topics, tables and folders, apart from the job's own, that a commit of the dataset writes to, so
        that a source that reads one of them is refused. The default names none."""
        return ()

    def is_in_system(self, fact: SourceFact) -> bool:
        """Return whether the sink writes to the system of which a source has found this, such as a Kafka cluster's id.
        It may connect, and raises TransientError if the system can't be asked. The default does not know."""
        return False

    @property
    def writes_to(self) -> str:
        """In words what no other branch of a fork may write to, too: tables, and where they are. Empty: nothing is."""
        return ""

    @property
    def committers(self) -> Mapping[str, OpensCommitter]:
        """What opens the committers of its steps, by the name stored with them."""
        return {}


class SinkSettings(Sink):
    """A sink that is the section `sink` of a job file, of that type."""

    type: str
