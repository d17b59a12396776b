"""Base class of sinks that commit at their target, by a committer of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from distcommit.core.interfaces.committer import (
    CommitRequest,
    CommitterContext,
    OpensCommitter,
    SealRequest,
    SinkCommitter,
)
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.steps import CommitStep, StepContext
from distcommit.steps.sink import SinkCommitStep


class CommitterSink(Sink):
    """A sink whose writers return commit infos, which its committer makes visible: one request for each branch of a
    dataset. Subclasses set `name`, as a class attribute.

    Attributes:
        infos_version: of the infos that writers make; raised with each change that a committer could not read.
    """

    infos_version: ClassVar[int] = 1

    @property
    def discards(self) -> bool:
        """Whether writers leave anything at the target before it is committed, but staged files: then the committer's
        `discard` takes away what lost."""
        return False

    @property
    def leaves_in_doubt(self) -> bool:
        """Whether that is prepared transactions, or the like: what `discard` has taken away nobody can commit any more,
        also who is about to. Then it is asked, too, for what a person has accepted as it is."""
        return False

    def upgraded(self, info: Any, version: int) -> Any:
        """A commit info that was stored with an older version, as writers would make it now. To be given by sinks whose
        `infos_version` is not the first."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its infos of version {version} are now")

    @abstractmethod
    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        """A committer for one batch of requests. An error here is an outage, which no dataset is blamed for."""

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
