"""The task flow as one value; without a fork it has one branch, `main`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeVar

from distcommit.constructs.construct_settings import ForkOperatorSettings
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import OpensCommitter
from distcommit.core.interfaces.constructs import Converter, ForkOperator, RowChecker, TaskChecker
from distcommit.core.interfaces.sink import BY_DATASET, Publish, Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.redaction import Redaction
from distcommit.core.work_units import MAIN_BRANCH, BranchResult, is_error_branch
from distcommit.pipeline.column_checks import check_columns, columns_behind, constructs_fit
from distcommit.pipeline.limits.time_limit import construct_time_limit
from distcommit.schemas.known_columns import Columns, typed_columns
from distcommit.schemas.schema_size_limits import check_levels
from distcommit.sinks.files.sink import AccessSettings, FileSink

logger = logging.getLogger(__name__)

REJECT, DROP = "reject", "drop"
"""Values of `TaskFlow.unmatched` besides names of branches."""
_ERRORS = FileSink()
"""The sink of error branches: files that can be queried, whatever the job's sinks."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A converter or row checker in a chain.

    Attributes:
        name: its type's name, numbered if the chain has several of the type.
        construct: the converter or row checker.
        is_mandatory: of a checker, whether a record that fails the check is rejected.
        on_failure: what happens to a rejected record.
        datasets: patterns of the datasets that it applies to; empty for all.
    """

    name: str
    construct: Converter | RowChecker
    is_mandatory: bool = True
    on_failure: Literal["divert", "drop", "fail"] = "fail"
    datasets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A task checker of a branch.

    Attributes:
        name: its type's name, numbered if the branch has several of the type.
        checker: the task checker.
        is_mandatory: whether a failed check fails the work unit.
        datasets: patterns of the datasets that it applies to; empty for all.
    """

    name: str
    checker: TaskChecker
    is_mandatory: bool = True
    datasets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a task flow.

    Attributes:
        sink: the sink.
        name: the branch's name.
        stages: converters and row checkers behind the fork.
        checks: task checkers.
        optional: whether other branches are committed if this one fails.
        error: why the branch failed in an earlier attempt at this work unit. If set, records go to its error branch.
        error_construct: the construct that failed.
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
        source: the source.
        branches: the branches in the order of the job file; exactly one without a fork.
        stages: converters and row checkers before the fork.
        fork: routes records to branches; None with one branch.
        on_rejected: what happens to a record that the fork rejects.
        unmatched: records that the fork sends to no branch are rejected (`reject`), filtered (`drop`), or go to the
            branch of this name, which receives no other records.
        construct_seconds: how long a converter, row checker or fork may work on a batch; 0 for no limit.
        store_id: id of the job's store; empty if nothing is run.
        hidden: secrets that must not appear in messages.
        describer: the job file's source, which describes the extracts, if `source` takes its place for one run.
    """

    source: Source
    branches: Sequence[Branch]
    stages: Sequence[Stage] = ()
    fork: ForkOperator | None = None
    on_rejected: Literal["divert", "fail"] = "fail"
    unmatched: str = REJECT
    construct_seconds: float = 0
    store_id: str = ""
    hidden: Redaction = field(default_factory=Redaction, compare=False)
    describer: Source | None = None

    @property
    def errors(self) -> FileSink:
        """The sink of error branches, with the first configured file access."""
        access = next((sink.file_access for sink in self.sinks if sink.file_access), None)
        return _ERRORS if access is None else FileSink(access=AccessSettings.of(access))

    @classmethod
    def straight(cls, source: Source, sink: Sink) -> TaskFlow:
        return cls(source, (Branch(sink),))

    def with_source(self, source: Source) -> TaskFlow:
        """Replace the source. The replaced source still describes the extracts."""
        return replace(self, source=source, describer=self.describer or self.source)

    def for_dataset(self, dataset_urn: str) -> TaskFlow:
        """Return the flow with only the constructs that apply to a dataset."""
        if not self._patterns:
            return self
        branches = [
            replace(
                branch,
                stages=_applying(branch.stages, dataset_urn),
                checks=_applying(branch.checks, dataset_urn),
            )
            for branch in self.branches
        ]
        return replace(self, stages=_applying(self.stages, dataset_urn), branches=branches)

    @property
    def _patterns(self) -> Sequence[str]:
        chains = [self.stages, *(chain for branch in self.branches for chain in (branch.stages, branch.checks))]
        return tuple(dict.fromkeys(pattern for chain in chains for part in chain for pattern in part.datasets))

    def diverting(self, results: Sequence[BranchResult]) -> TaskFlow | None:
        """Return the flow for another attempt, in which the branches that failed are diverted. Return None if another
        attempt would not help: a branch that is not optional has failed, or all failed branches were diverted already.

        Args:
            results: the results of the failed attempt, or of the prefix that it kept.
        """
        failed = {result.branch: result for result in results if result.error and not self.branch(result.branch).error}
        if not failed or not all(self.branch(name).optional for name in failed):
            return None
        branches = [
            replace(branch, error=failed[branch.name].error, error_construct=failed[branch.name].error_construct)
            if branch.name in failed
            else branch
            for branch in self.branches
        ]
        return replace(self, branches=branches)

    def sink_of(self, branch: str) -> Sink:
        """Return the sink of a branch or error branch; raises the errors of `branch`."""
        return self.errors if is_error_branch(branch) else self.branch(branch).sink

    def branch(self, name: str) -> Branch:
        """Return a branch; raises ConfigurationError if the job file does not have it."""
        for branch in self.branches:
            if branch.name == name:
                return branch
        raise ConfigurationError(
            "prepared data belongs to a branch that is not in the job file",
            id="BRANCH_MISSING",
            expected=f"one of {', '.join(branch.name for branch in self.branches)}",
            found=name,
            todo="put the branch back into the job file",
        )

    @property
    def sinks(self) -> Sequence[Sink]:
        return tuple(branch.sink for branch in self.branches)

    @property
    def grouping_sink(self) -> Sink:
        """The first sink that defines commit groups, or else the first sink."""
        return next((sink for sink in self.sinks if sink.grouped_by != BY_DATASET), self.sinks[0])

    @property
    def publish(self) -> Publish:
        """How new files relate to published ones, equal in all branches."""
        return next((sink.publisher for sink in self.sinks if sink.publisher != "append"), "append")

    @property
    def committers(self) -> Mapping[str, OpensCommitter]:
        """All sinks' committers, by the name stored in their steps."""
        return {name: opens for sink in self.sinks for name, opens in sink.committers.items()}

    @property
    def preparing_committers(self) -> Mapping[str, OpensCommitter]:
        """The committers of sinks whose writers leave data at the target before a commit."""
        return {name: opens for name, opens in self.committers.items() if opens.prepares_at_target}

    @property
    def can_be_audited(self) -> bool:
        return all(sink.abilities.audit for sink in self.sinks)

    def loop_of(self, dataset_urn: str, branch: str = "") -> str:
        """Describe a dataset's target that the source reads; empty if there is none.

        Args:
            branch: name of the only branch to check, in any system; empty for all branches in their own systems.
        """
        for candidate in self.branches:
            for target in candidate.sink.targets(dataset_urn) if branch in ("", candidate.name) else ():
                if self.source.reads(target.in_any_system() if branch else target):
                    return f"{target.kind} {target.name}"
        return ""

    def published_in(self, dataset_urn: str, output: str) -> str:
        """Describe where a dataset is published, by branch if several."""
        locations = {
            branch.name: branch.sink.published_in(dataset_urn, output, branch.name) for branch in self.branches
        }
        if len(locations) == 1:
            return next(iter(locations.values()))
        return ", ".join(f"{name}: {location}" for name, location in locations.items() if location)

    @property
    def converters(self) -> Iterator[Converter]:
        chains = [self.stages, *(branch.stages for branch in self.branches)]
        return (stage.construct for chain in chains for stage in chain if isinstance(stage.construct, Converter))

    @property
    def makes_several(self) -> bool:
        return any(converter.makes_several for converter in self.converters)

    def announce(self, datasets: Sequence[str], run_id: str) -> None:
        """Announce a task's datasets to sinks, with a known schema.

        Behind a fork, or without schema, sinks only look them up, because a branch may get no records.
        """
        patterns = self._patterns
        alike: dict[tuple[bool, ...], list[str]] = {}
        for urn in datasets:
            alike.setdefault(tuple(fnmatchcase(urn, pattern) for pattern in patterns), []).append(urn)
        for urns in alike.values():
            self.for_dataset(urns[0])._announce(urns, run_id)

    def _announce(self, datasets: Sequence[str], run_id: str) -> None:
        branches = [branch for branch in self.branches if not branch.error] if datasets else []
        for branch in branches:
            with construct_time_limit(self.construct_seconds, "convert_schema"):
                reached = FlowColumns.of(self.source).after((*self.stages, *branch.stages))
            schema = reached.columns.full_schema() if self.fork is None else None
            if schema is not None:
                branch.sink.announce(datasets, schema, run_id)
            else:
                branch.sink.look_up(datasets, run_id)

    def close(self) -> None:
        """Release converters' resources until their next use."""
        for converter in self.converters:
            try:
                with construct_time_limit(self.construct_seconds, type(converter).__name__):
                    converter.close()
            except Exception:  # the work units are done
                logger.warning("a converter could not be closed", exc_info=True)

    def check(self) -> None:
        """Check known columns from the source through constructs to sinks, once for each dataset pattern.

        Raises:
            ConfigurationError: if columns do not fit. It names two constructs, or branch and column.
        """
        for pattern in self._patterns or [""]:
            self.for_dataset(pattern)._check()

    def _check(self) -> None:
        reached = FlowColumns.of(self.source).after(self.stages)
        for branch in self.branches:
            if (
                self.fork is not None
                and branch.name != self.unmatched
                and not reached.may_receive(self.fork, branch.name)
            ):
                continue  # the fork skips this branch for all records
            location = f" of branch {branch.name}"
            written = reached.after(branch.stages, location)
            for check in branch.checks:
                with constructs_fit(check.name + location, written.maker):
                    check_columns(check.checker, written.columns)
            _check_sink(branch, written)


_Part = TypeVar("_Part", Stage, Check)


def _applying(parts: Sequence[_Part], dataset_urn: str) -> tuple[_Part, ...]:
    return tuple(
        replace(part, datasets=())
        for part in parts
        if not part.datasets or any(fnmatchcase(dataset_urn, pattern) for pattern in part.datasets)
    )


def _check_sink(branch: Branch, reached: FlowColumns) -> None:
    columns, requested = reached.columns, branch.sink.required_columns()
    try:
        check_levels(columns.fields)
        schema = columns.full_schema()
        if schema is None and requested is not None:
            schema = typed_columns(columns, requested, branch.sink.name)
        if schema is not None:
            branch.sink.check_schema(schema)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the sink of branch {branch.name} can't store the records of {reached.maker}",
            id="RECORDS_NOT_STORABLE",
            expected="records that the sink can write",
            found=str(error),
            todo="correct the settings of the sink, or convert the records before it",
        ) from error


@dataclass(frozen=True, slots=True)
class FlowColumns:
    """Known columns at a place in a flow.

    Attributes:
        columns: the known columns.
        maker: the construct that last changed the columns.
    """

    columns: Columns
    maker: str = "the source"

    @classmethod
    def of(cls, source: Source) -> FlowColumns:
        return cls(Columns.of(source.batch_schema))

    def after(self, stages: Sequence[Stage], location: str = "") -> FlowColumns:
        """Return columns after constructs. After a construct for some datasets only, they are unknown.

        Raises ConfigurationError if a construct does not accept the columns before it.

        Args:
            location: added to names in errors.
        """
        reached = self
        for stage in stages:
            if stage.datasets:  # the columns depend on the dataset
                reached = FlowColumns(Columns(), stage.name)
                continue
            with constructs_fit(stage.name + location, reached.maker):
                columns = columns_behind(stage.construct, reached.columns)
            if columns != reached.columns:
                reached = FlowColumns(columns, stage.name)
        return reached

    def may_receive(self, fork: ForkOperator, branch: str) -> bool:
        """Return whether the fork may send records to a branch; raises ConfigurationError if it can't decide."""
        with constructs_fit("the fork", self.maker):
            if isinstance(fork, ForkOperatorSettings):
                return fork.may_accept(branch, self.columns)
            schema = self.columns.full_schema()
            return schema is None or fork.accepts(branch, schema)
