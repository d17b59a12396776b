"""The commit step of sinks with a committer."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from time import perf_counter
from typing import Any, ClassVar, Self, assert_never

from distcommit.core.errors import DistcommitError, LostError, SinkUnavailableError, TransientError, error_text
from distcommit.core.interfaces.commit_step import CommitStep, StepContext, Verdict, Verification, require_success
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    HeldBack,
    OpensCommitter,
    RetryLater,
    SinkCommitter,
    check_plain,
)
from distcommit.core.interfaces.sink_metrics import SinkMetrics
from distcommit.core.records.run_counts import FlowCounts, SinkCounter, SinkCounts
from distcommit.steps.changed_steps import rejected_change
from distcommit.steps.step_execution import held_back_by
from distcommit.steps.step_registry import register

logger = logging.getLogger(__name__)


@register
class SinkCommitStep(CommitStep):
    """Step that passes a run's commit infos for a branch to the sink's committer.

    The target holds the proof, so `verify` always returns PENDING, and a replay commits again, without effect on
    committed data. The step stores only the name of the sink; the job provides the sink.
    """

    type_name: ClassVar[str] = "sink-commit"
    version: ClassVar[int] = 1
    __slots__ = ("_changed", "_counters", "_counts", "context", "request", "sink")

    def __init__(self, sink: OpensCommitter, request: CommitRequest, context: CommitterContext) -> None:
        self.sink, self.request, self.context = sink, request, context
        self._counts, self._counters = Counter[str](), tuple[SinkCounter, ...]()
        self._changed: CommitRequest | None = None

    def __repr__(self) -> str:
        return f"SinkCommitStep({self.sink.name!r}, {self.request.dataset_urn!r}, epoch {self.request.epoch})"

    @property
    def sink_name(self) -> str:
        return self.sink.name

    @property
    def target_branch(self) -> str:
        return self.request.branch

    @property
    def commit_counts(self) -> FlowCounts:
        counts = SinkCounts(self.request.branch, self.sink.name, **self._counts)
        return FlowCounts(sinks=(counts,), counters=self._counters)

    @property
    def is_changed(self) -> bool:
        return self._changed is not None

    def accept_change(self) -> None:
        self.request, self._changed = self._changed or self.request, None

    @property
    def prepared_by(self) -> tuple[str, ...]:
        return self.request.attempts if self.sink.prepares_at_target else ()

    def to_row(self) -> list[Any]:
        request = self._changed or self.request
        infos, bases, attempts = list(request.infos), list(request.bases), list(request.attempts)
        names = [self.sink.name, request.dataset_urn, request.epoch]
        return [*names, infos, request.branch, bases, request.infos_version, attempts]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        """Create the step with the sink of the context.

        Raises:
            SinkUnavailableError: if the context has no sink of that name.
            TypeError: if the row is malformed.
        """
        name, urn, epoch, infos, branch, bases, infos_version, attempts = row
        if tuple(map(type, row)) != (str, str, int, list, str, list, int, list):
            raise TypeError(f"invalid row of a sink commit: {row!r}")
        if not (all(type(base) is int for base in bases) and all(type(attempt) is str for attempt in attempts)):
            raise TypeError(f"invalid row of a sink commit: {row!r}")
        check_plain(infos)
        sink = context.committers.get(name)
        if sink is None:
            raise SinkUnavailableError(
                "a stored commit belongs to another sink",
                id="SINK_EXCHANGED",
                dataset=urn,
                epoch=epoch,
                expected=f"a job file with the sink {name!r}",
                found=" and ".join(map(repr, context.committers)) or "a job whose sink has no committer",
                todo="run the job with that sink until nothing is pending",
            )
        request = CommitRequest(urn, epoch, tuple(infos), branch, tuple(bases), infos_version, tuple(attempts))
        return cls(sink, request, context.for_committers)

    def verify(self) -> Verification:
        return Verdict.PENDING

    def execute(self) -> None:
        error = self.execute_all([self])[0]
        if error is not None:
            raise error

    @classmethod
    def execute_all(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        """Commit each sink's steps in one call; the committer checks which are done. Return the error of each step,
        or None."""
        errors: dict[int, DistcommitError | None] = {}
        for name in dict.fromkeys(step.sink_name for step in steps):
            indices = [index for index, step in enumerate(steps) if step.sink_name == name]
            errors.update(zip(indices, cls._commit([steps[index] for index in indices]), strict=True))
        return [errors[index] for index in range(len(steps))]

    @classmethod
    def execute_atomically(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        return cls._commit(steps, is_complete=True)

    @classmethod
    def _commit(cls, steps: Sequence[Self], *, is_complete: bool = False) -> list[DistcommitError | None]:
        """Commit one sink's steps with one call of its committer, without steps whose stored infos cannot be used. If
        `is_complete`, one such step prevents the commit of all."""
        requests: dict[int, CommitRequest] = {}
        errors: dict[int, DistcommitError | None] = {}
        for index, step in enumerate(steps):
            step._changed = None
            try:
                requests[index] = step._current_request()
            except SinkUnavailableError as error:
                errors[index] = error
        if errors and is_complete:
            culprit = steps[min(errors)].request.dataset_urn
            return [errors.get(index) or held_back_by(culprit) for index in range(len(steps))]
        if requests:
            answers = cls._answers(
                [steps[index] for index in requests], list(requests.values()), is_complete=is_complete
            )
            errors.update(zip(requests, answers, strict=True))
        return [errors[index] for index in range(len(steps))]

    @classmethod
    def _answers(
        cls, steps: Sequence[Self], requests: list[CommitRequest], *, is_complete: bool
    ) -> list[DistcommitError | None]:
        outcomes: Sequence[CommitOutcome] = ()
        first, began, retries, is_open = steps[0], perf_counter(), 0, False
        context = replace(first.context, metrics=SinkMetrics(first.request.branch, first.sink.name))
        try:
            with open_committer(first.sink, context) as committer:
                is_open = True
                try:
                    outcomes = committer.commit_atomically(requests) if is_complete else committer.commit(requests)
                finally:
                    retries = committer.retry_count
        except SinkUnavailableError as error:  # each step alone would wait for the same sink
            return [error] * len(steps)
        finally:
            for step, outcome in zip_longest(steps, outcomes[: len(steps)]):
                step._count(outcome, is_open=is_open)
            first._counts["commit_retries"] += retries
            first._counts["target_ms"] += round((perf_counter() - began) * 1000)
            first._counters += context.metrics.counters()
        if len(outcomes) != len(requests):
            raise DistcommitError(
                "a sink's committer returned the wrong number of outcomes",
                id="STEP_FAILED",
                sink=first.sink.name,
                expected=f"{len(requests)} outcomes",
                found=str(len(outcomes)),
                todo="correct the committer's `commit`",
            )
        results = [step._result(outcome) for step, outcome in zip(steps, outcomes, strict=True)]
        for step, (_, changed) in zip(steps, results, strict=True):
            step._changed = changed
        return [error for error, _ in results]

    def _count(self, outcome: CommitOutcome | None, *, is_open: bool) -> None:
        counted_as = _COUNTED_AS.get(type(outcome), "commit_retries")
        is_unknown = self.sink.leaves_in_doubt or (is_open and outcome is None)
        is_in_doubt = is_unknown and counted_as == "commit_retries"
        self._counts.update(("commit_attempts", counted_as, *(("commit_in_doubt",) if is_in_doubt else ())))

    def withdraw(self) -> None:
        """Roll the commit back, even if it is visible.

        Raises:
            ConflictError: if the commit cannot be rolled back. Nothing was changed.
        """
        self._roll_back("withdraw", lambda committer: committer.withdraw([self._current_request()]))

    def _roll_back(self, callback: str, act: Callable[[SinkCommitter], bool | None]) -> None:
        with open_committer(self.sink, self.context) as committer:
            try:
                require_success(repr(self), callback, act(committer))
            except DistcommitError:
                raise
            except Exception as error:
                raise DistcommitError(
                    f"a sink's committer failed in {callback}()",
                    id="ROLLBACK_FAILED",
                    step=repr(self),
                    found=error_text(error),
                    todo="repair the sink's target, then abandon the dataset again",
                ) from error

    def allow(self) -> None:
        with open_committer(self.sink, self.context) as committer:
            require_success(repr(self), "allow", committer.allow([self._current_request()]))

    def _current_request(self) -> CommitRequest:
        """Return the request, with its infos converted to the sink's current version.

        Raises:
            SinkUnavailableError: if a newer version of the sink made the infos, or `upgraded` cannot convert them.
        """
        request, version = self.request, self.sink.infos_version
        if request.infos_version == version:
            return request
        actual = f"infos of version {request.infos_version}"
        try:
            if request.infos_version < version:
                infos = tuple(self.sink.upgraded(info, request.infos_version) for info in request.infos)
                return replace(request, infos=infos, infos_version=version)
        except Exception as error:  # noqa: BLE001 - a custom sink
            actual += f": {error_text(error)}"
        raise SinkUnavailableError(
            "a stored commit is of another version of the sink",
            id="SINK_EXCHANGED",
            dataset=request.dataset_urn,
            epoch=request.epoch,
            sink=self.sink.name,
            expected=f"infos of version {version}, or of an older version that the sink's `upgraded` accepts",
            found=actual,
            todo="run the version of the sink that wrote it, or a newer one; nothing was lost",
        )

    def undo(self) -> None:
        """Delete prepared output at the target, after `withdraw`.

        Raises:
            DistcommitError: if the deletion fails now. Calling again resumes.
        """
        if not self.prepared_by:
            return
        request = self.request
        aborted = [AbortedAttempt(request.epoch, "", attempt, attempt, request.infos) for attempt in request.attempts]
        self._roll_back("abort", lambda committer: committer.abort(aborted))

    def _result(self, outcome: CommitOutcome) -> tuple[DistcommitError | None, CommitRequest | None]:
        changed = None
        if isinstance(outcome, RetryLater) and outcome.infos is not None:
            try:
                infos = list(outcome.infos)
                check_plain(infos)
            except Exception as error:  # noqa: BLE001 - infos of a custom sink
                expected, actual = "a sequence of plain data", error_text(error)
                return rejected_change(self.request.dataset_urn, self.request.epoch, expected, actual), None
            changed = replace(self.request, infos=tuple(infos), infos_version=self.sink.infos_version)
        return _error_of(outcome, self.request, self.sink.name), changed


def _error_of(outcome: CommitOutcome, request: CommitRequest, sink: str) -> DistcommitError | None:
    ids = {"dataset": request.dataset_urn, "epoch": str(request.epoch), "sink": sink}
    match outcome:
        case Committed() | AlreadyCommitted():
            return None
        case RetryLater(reason):
            return TransientError(
                "a sink could not commit yet",
                id="TARGET_UNAVAILABLE",
                found=reason,
                todo="none at first: the commit is retried, at the latest by the next run. If it recurs, correct"
                " what was found",
                **ids,
            )
        case HeldBack(dataset_urn):
            return held_back_by(dataset_urn, **ids)
        case FailedForGood(reason):
            expected = f"the sink {sink!r} to commit the prepared output"
            return LostError(
                "the target rejects a sealed commit", id="COMMIT_REJECTED", expected=expected, found=reason, **ids
            )
    assert_never(outcome)


_COUNTED_AS: Mapping[type, str] = {
    Committed: "commit_successes",
    AlreadyCommitted: "commit_successes",
    FailedForGood: "commit_failures",
}


@contextmanager
def open_committer(sink: OpensCommitter, context: CommitterContext) -> Iterator[SinkCommitter]:
    """Open a committer for a block. Release it at the end, or close it after an exception.

    An error on closing is only logged, because the commit does not depend on it.

    Raises:
        SinkUnavailableError: if the committer can't be opened.
    """
    try:
        committer = sink.open_committer(context)
    except Exception as error:
        raise SinkUnavailableError(
            "the sink cannot be opened to commit",
            sink=sink.name,
            found=error_text(error),
            todo=getattr(error, "todo", "")
            or "correct the sink's settings or repair its target, and run again; nothing was lost",
        ) from error
    end = committer.close
    try:
        yield committer
        end = committer.release
    finally:
        try:
            end()
        except Exception:
            logger.warning("a sink's committer could not be closed", exc_info=True)
