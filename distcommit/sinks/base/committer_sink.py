"""Base classes of sinks whose committer makes records visible at the target."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.interfaces.committer import (
    CommitRequest,
    CommitterContext,
    OpensCommitter,
    SealRequest,
    SinkCommitter,
)
from distcommit.core.interfaces.sink import BY_DATASET, Sink
from distcommit.core.support.settings_model import SettingsModel
from distcommit.sinks.base.table_names import DATASET
from distcommit.steps.sink_step import SinkCommitStep


class CommitterSink(Sink):
    """A sink whose committer commits its writers' commit infos, in one request for each branch of a dataset.

    Attributes:
        infos_version: version of the commit infos. It must increase when older committers can't read them.
    """

    infos_version: ClassVar[int] = 1

    @property
    def prepares_at_target(self) -> bool:
        """Whether writers leave data at the target before a commit, which `abort` deletes for aborted attempts."""
        return False

    @property
    def leaves_in_doubt(self) -> bool:
        """Whether writers leave prepared transactions, which `abort` rolls back for good. If True, `abort` is also
        called for commits that an operator has accepted."""
        return False

    def upgraded(self, info: Any, version: int) -> Any:
        """Convert a commit info of an older version; required if `infos_version` is above 1."""
        raise NotImplementedError(f"{type(self).__name__} must implement `upgraded` for its infos of version {version}")

    @abstractmethod
    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        """Open a committer for one batch of requests. An error counts as an outage of the target."""

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        infos = tuple(info for result in request.results for info in result.infos)
        if not infos:
            return []
        commit = CommitRequest(
            dataset_urn=request.dataset_urn,
            epoch=request.epoch,
            infos=infos,
            branch=request.branch,
            bases=request.bases,
            infos_version=self.infos_version,
            attempts=request.attempts,
        )
        return [SinkCommitStep(self, commit, context.for_committers)]

    @property
    def committers(self) -> Mapping[str, OpensCommitter]:
        return {self.name: self}


class GroupsByTable(CommitterSink):
    """A sink of tables. If all datasets share a table, they form one commit group."""

    if TYPE_CHECKING:
        table: str

    @abstractmethod
    def shown(self, table: str) -> str:
        """Return a table's name or template for messages."""

    @abstractmethod
    def group_of(self, dataset_urn: str) -> str: ...

    @property
    def shares_tables(self) -> bool:
        return DATASET not in self.table

    @property
    def grouped_by(self) -> str:
        return f"table {self.shown(self.table)}" if self.shares_tables else BY_DATASET

    def commit_group(self, dataset_urn: str) -> str:
        return self.group_of(dataset_urn) if self.shares_tables else dataset_urn


class StoredName(SettingsModel):
    """Settings of a sink that several branches of a fork may have.

    Attributes:
        stored_as: suffix of the name that commits are stored with. It must differ between branches, and must not change
            while commits are pending.
    """

    stored_as: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,64}$")

    def name_of(self, kind: str) -> str:
        return f"{kind}@{self.stored_as}" if self.stored_as else kind
