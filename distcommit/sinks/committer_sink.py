"""Base class of sinks that commit at their target, by a committer of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from distcommit.model.committer import CommitRequest, CommitterContext, OpensCommitter, SinkCommitter
from distcommit.model.sink import SealRequest, Sink
from distcommit.model.steps import CommitStep, StepContext
from distcommit.steps.sink import SinkCommitStep


class CommitterSink(Sink):
    """A sink whose writers return commit infos, which its committer makes visible: one request for each branch of a
    dataset. Subclasses set `name`, as a class attribute.

    Attributes:
        discards: whether writers leave anything at the target before it is committed, but staged files: then the
            committer's `discard` takes away what lost.
    """

    discards: ClassVar[bool] = False

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
            attempts=request.attempts,
        )
        return [SinkCommitStep(self, commit, context.for_committers)]

    @property
    def committers(self) -> Mapping[str, OpensCommitter]:
        return {self.name: self}
