"""The task flow as one value: source, converters, row checkers, fork, and then each branch's own with its sink.

Without a fork there is one branch, `main`; nothing else is different then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from distcommit.constructs.schemas.columns import Columns, typed_of
from distcommit.constructs.settings import CheckerSettings, ConverterSettings, ForkOperatorSettings
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import OpensCommitter
from distcommit.core.interfaces.constructs import Converter, ForkOperator, RowChecker, TaskChecker
from distcommit.core.interfaces.sink import BY_DATASET, Publish, Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.redaction import Redaction
from distcommit.core.support.nesting import check_levels
from distcommit.core.work import MAIN_BRANCH, BranchResult, is_errors
from distcommit.pipeline.limits.time_limit import at_most
from distcommit.sinks.files.sink import AccessSettings, FileSink

logger = logging.getLogger(__name__)

_ERRORS = FileSink()
"""What error branches look like, whatever the job's sinks: files that can be queried."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A converter or a row checker in its place.

    Attributes:
        name: of its type, and where a chain has several of one type with a number.
        construct: itself.
        is_mandatory: of a checker, whether a record that does not pass is turned away.
        on_failure: what becomes of a record that is turned away.
    """

    name: str
    construct: Converter | RowChecker
    is_mandatory: bool = True
    on_failure: Literal["divert", "drop", "fail"] = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """A task checker in its place."""

    name: str
    checker: TaskChecker
    is_mandatory: bool = True


@dataclass(frozen=True, slots=True)
class Branch:
    """What happens to the records of one branch.

    Attributes:
        sink: where they go.
        name: its own.
        stages: converters and row checkers behind the fork.
        checks: what its task checkers are.
        optional: whether the others are committed if it fails.
        error: why it has failed in this attempt's work unit before: all of its records go to its error branch.
        error_construct: at what.
    """

    sink: Sink
    name: str = MAIN_BRANCH
    stages: Sequence[Stage] = ()
    checks: Sequence[Check] = ()
    optional: bool = False
    error: str = ""
    error_construct: str = ""


@dataclass(frozen=True, slots=True)
class TaskFlow:
    """A job's constructs from source to sinks. Picklable.

    Attributes:
        source: where records come from.
        branches: where they go, in the order of the job file; one, if nothing forks.
        stages: converters and row checkers before the fork.
        fork: what sends records to branches; None with one branch.
        on_rejected: what becomes of a record that the fork sends nowhere.
        construct_seconds: how long a converter, a row checker or the fork may work on a batch; 0 for no limit.
        store_id: of the store of the job that runs it; empty if nothing runs.
        hidden: what no process that it comes to may show.
    """

    source: Source
    branches: Sequence[Branch]
    stages: Sequence[Stage] = ()
    fork: ForkOperator | None = None
    on_rejected: Literal["divert", "fail"] = "fail"
    construct_seconds: float = 0
    store_id: str = ""
    hidden: Redaction = field(default_factory=Redaction, compare=False)

    @property
    def errors(self) -> FileSink:
        """The files of error branches: whoever may read those of a branch may read them."""
        access = next((sink.file_access for sink in self.sinks if sink.file_access), None)
        return _ERRORS if access is None else FileSink(access=AccessSettings.of(access))

    @classmethod
    def straight(cls, source: Source, sink: Sink) -> TaskFlow:
        """From a source to a sink, with nothing between them."""
        return cls(source, (Branch(sink),))

    def with_source(self, source: Source) -> TaskFlow:
        """The same for another source."""
        return replace(self, source=source)

    def diverting(self, results: Sequence[BranchResult]) -> TaskFlow | None:
        """The same with the branches diverted that failed an attempt; None if others than optional ones have, or none
        but those that were diverted already.

        Args:
            results: of the attempt that failed. A prefix of it names what was diverted, too.
        """
        failed = {result.branch: result for result in results if result.error and not self.branch(result.branch).error}
        if not failed or not all(self.branch(name).optional for name in failed):
            return None
        branches = [
            replace(each, error=failed[each.name].error, error_construct=failed[each.name].error_construct)
            if each.name in failed
            else each
            for each in self.branches
        ]
        return replace(self, branches=branches)

    def sink_of(self, branch: str) -> Sink:
        """The sink of a branch, those of errors among them.

        Raises:
            ConfigurationError: if there is no such branch.
        """
        return self.errors if is_errors(branch) else self.branch(branch).sink

    def branch(self, name: str) -> Branch:
        """The branch of that name. Raises as `sink_of`."""
        for found in self.branches:
            if found.name == name:
                return found
        raise ConfigurationError(
            "what was prepared is of a branch that the job does not have",
            expected=f"one of {', '.join(each.name for each in self.branches)}",
            found=name,
            todo="put the branch back into the job file",
        )

    @property
    def sinks(self) -> Sequence[Sink]:
        """Those of all branches."""
        return tuple(branch.sink for branch in self.branches)

    @property
    def grouping_sink(self) -> Sink:
        """The one that says what datasets are committed with: the first that names groups."""
        return next((sink for sink in self.sinks if sink.grouped_by != BY_DATASET), self.sinks[0])

    @property
    def publish(self) -> Publish:
        """How what is published of a dataset stands to what is there already: the same in all branches."""
        return next((sink.publisher for sink in self.sinks if sink.publisher != "append"), "append")

    @property
    def committers(self) -> Mapping[str, OpensCommitter]:
        """What opens the committers of all sinks, by the name stored with their steps."""
        return {name: opens for sink in self.sinks for name, opens in sink.committers.items()}

    @property
    def discarding(self) -> Mapping[str, OpensCommitter]:
        """Those of them whose writers leave anything at their target before a commit."""
        return {name: opens for name, opens in self.committers.items() if opens.discards}

    @property
    def can_be_audited(self) -> bool:
        """Whether what is published can be, in all branches."""
        return all(sink.abilities.audit for sink in self.sinks)

    def loop_of(self, dataset_urn: str, branch: str = "") -> str:
        """Return what the source reads of what the sinks write of a dataset, in words; empty if it reads nothing.

        Args:
            dataset_urn: the dataset.
            branch: only the sink of this branch, as if its system were the source's.
        """
        for each in self.branches:
            for target in each.sink.targets(dataset_urn) if branch in ("", each.name) else ():
                if self.source.reads(target.in_any_system() if branch else target):
                    return f"{target.kind} {target.name}"
        return ""

    def published_in(self, dataset_urn: str, output: str) -> str:
        """Where a reader finds what is published of a dataset, in words for people; of several branches with their
        names."""
        found = {branch.name: branch.sink.published_in(dataset_urn, output, branch.name) for branch in self.branches}
        if len(found) == 1:
            return next(iter(found.values()))
        return ", ".join(f"{name}: {found_at}" for name, found_at in found.items() if found_at)

    @property
    def converters(self) -> Iterator[Converter]:
        """All of them, of all branches."""
        chains = [self.stages, *(branch.stages for branch in self.branches)]
        return (stage.construct for chain in chains for stage in chain if isinstance(stage.construct, Converter))

    @property
    def makes_several(self) -> bool:
        """Whether several records may come of one."""
        return any(converter.makes_several for converter in self.converters)

    def announce(self, datasets: Sequence[str], run_id: str) -> None:
        """Tells the sinks which datasets a task is about to write: with their columns, if all of these are known; or
        that some of them may come, behind a fork, which may send nothing of a dataset to a branch."""
        branches = [branch for branch in self.branches if not branch.error] if datasets else []
        for branch in branches:
            with at_most(self.construct_seconds, "convert_schema"):
                reached = Reached.of(self.source).after((*self.stages, *branch.stages))
            schema = reached.columns.whole() if self.fork is None else None
            if schema is not None:
                branch.sink.announce(datasets, schema, run_id)
            else:
                branch.sink.look_up(datasets, run_id)

    def close(self) -> None:
        """Has all converters let go of what they hold; they may be used again."""
        for converter in self.converters:
            try:
                with at_most(self.construct_seconds, type(converter).__name__):
                    converter.close()
            except Exception:  # whatever it is, work units are done
                logger.warning("a converter could not be closed", exc_info=True)

    def check(self) -> None:
        """Makes sure, as far as columns are known before a record is read, that each construct can work on what comes,
        and each sink can hold it.

        Raises:
            ConfigurationError: naming the construct and the one whose columns it can't take, or the branch of the sink
                and the column.
        """
        reached = Reached.of(self.source).after(self.stages)
        for branch in self.branches:
            if self.fork is not None and not reached.sent_on(self.fork, branch.name):
                continue  # it is passed over for all records
            where = f" of branch {branch.name}"
            written = reached.after(branch.stages, where)
            for check in branch.checks:
                with _fits(check.name + where, written.maker):
                    _check(check.checker, written.columns)
            _check_sink(branch, written)


def _check_sink(branch: Branch, reached: Reached) -> None:
    columns, asked = reached.columns, branch.sink.asked_columns()
    try:
        check_levels(columns.known)
        schema = columns.whole()
        if schema is None and asked is not None:
            schema = typed_of(columns, asked, branch.sink.name)
        if schema is not None:
            branch.sink.check_schema(schema)
    except ConfigurationError as error:
        raise ConfigurationError(
            "a sink can't hold what comes to it",
            expected=f"records that the sink of branch {branch.name} can write, from {reached.maker}",
            found=str(error),
            todo="correct the sink, or convert the records",
        ) from error


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a flow is followed before there are records.

    Attributes:
        columns: what is known of those that come there.
        maker: what made them, or took some of them away, as it is called.
    """

    columns: Columns
    maker: str = "the source"

    @classmethod
    def of(cls, source: Source) -> Reached:
        """Right behind a source."""
        return cls(Columns.of(source.batch_schema))

    def after(self, stages: Sequence[Stage], where: str = "") -> Reached:
        """Behind these constructs. Raises as `TaskFlow.check`.

        Args:
            stages: a chain, or a part of it.
            where: it stands, to be told behind the name of one.
        """
        reached = self
        for stage in stages:
            with _fits(stage.name + where, reached.maker):
                made = _made(stage.construct, reached.columns)
            if made != reached.columns:
                reached = Reached(made, stage.name)
        return reached

    def sent_on(self, fork: ForkOperator, branch: str) -> bool:
        """Whether the fork may send records to a branch. Raises as `TaskFlow.check`."""
        with _fits("the fork", self.maker):
            if isinstance(fork, ForkOperatorSettings):
                return fork.may_accept(branch, self.columns)
            schema = self.columns.whole()
            return schema is None or fork.accepts(branch, schema)


def _made(construct: Converter | RowChecker, columns: Columns) -> Columns:
    """What is known of columns behind a construct."""
    match construct:
        case ConverterSettings():
            return construct.convert_columns(columns)
        case Converter():
            schema = columns.whole()
            return Columns.of(None if schema is None else construct.convert_schema(schema))
        case RowChecker():
            _check(construct, columns)
    return columns


def _check(checker: RowChecker | TaskChecker, columns: Columns) -> None:
    """Raises ConfigurationError if a checker can't look at records with such columns."""
    if isinstance(checker, CheckerSettings):
        checker.check_columns(columns)
    elif (schema := columns.whole()) is not None:
        checker.check_schema(schema)


@contextmanager
def _fits(name: str, before: str) -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(
            "two constructs do not fit",
            expected=f"records that {name} can take, from {before}",
            found=str(error),
            todo="correct one of the two",
        ) from error
