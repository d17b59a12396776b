"""Base class of sinks that have a writer alone: what it writes is visible at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from distcommit.core.interfaces.committer import SealRequest
from distcommit.core.interfaces.sink import Abilities, Sink
from distcommit.core.interfaces.steps import CommitStep, StepContext


class WriterSink(Sink):
    """A sink that has nothing to commit: at-least-once, for jobs with `commit.delivery: at_least_once`.

    Its writers may make visible whatever they are given, as they are given it; once `prepare_commit` has returned it is
    durable, and what that returns is not looked at. Of an attempt that fails or dies, what it has written stays, and
    its records are written again: the target has them twice. None is missing.
    """

    abilities: ClassVar[Abilities] = Abilities(
        exactly_once=False, at_least_once=True, can_be_taken_back=False, atomic=False
    )

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        return ()
