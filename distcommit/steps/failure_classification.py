"""Classification of failed sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distcommit.core.errors import (
    CorruptError,
    DistcommitError,
    HeldBackError,
    LostError,
    SinkUnavailableError,
    UnknownStepTypeError,
    UnknownVersionError,
    reason_text,
)
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.core.support.io_batching import BatchedWork
from distcommit.steps.target_probes import OutputProbe, SinkProbe

_NOT_FOR_US = (UnknownVersionError, UnknownStepTypeError, SinkUnavailableError, HeldBackError)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a sequence is not finished.

    Attributes:
        kind: error id, or `outage`.
        reason: error text.
        lost: whether only an operator can resolve it.
        needs_other_version: whether the sequence waits for another version of the program or sink, or for another
            dataset of its commit group. The attempt is not counted then.
        outage: whether the target is down. The attempt is not counted then.
    """

    kind: str
    reason: str
    lost: bool = False
    needs_other_version: bool = False
    outage: bool = False


def is_lost(error: DistcommitError) -> bool:
    """Return whether only an operator can resolve an error."""
    return isinstance(error, LostError | CorruptError) and not isinstance(error, _NOT_FOR_US)


def classify_failure(error: DistcommitError, outage: str = "") -> Failure:
    """Classify a failed sequence.

    Args:
        error: why the sequence failed.
        outage: the error of a probe of the sequence's target; empty if the probe succeeded or was not needed.
    """
    if is_lost(error):
        return Failure(error.id, reason_text(str(error)), lost=True)
    if outage:
        return Failure("outage", outage, outage=True)
    return Failure(error.id, reason_text(str(error)), needs_other_version=isinstance(error, _NOT_FOR_US))


def classify_failures(
    failed: Mapping[SequenceName, DistcommitError],
    loaded: Mapping[SequenceName, Sequence[CommitStep]],
    context: StepContext,
    bucket: int,
) -> BatchedWork[dict[SequenceName, Failure]]:
    """Classify failed sequences. If an error alone does not show its class, probe the targets of the sequence, each
    target once for all sequences.

    Args:
        failed: the errors by sequence.
        loaded: the steps by sequence. A sequence without them is not probed.
        context: the environment of the steps.
        bucket: the bucket of the sequences.
    """
    failures: dict[SequenceName, Failure] = {}
    answers: dict[str, str] = {}
    for name, error in failed.items():
        outage = ""
        if isinstance(error, SinkUnavailableError) and name in loaded:  # the sink could not be opened
            outage = reason_text(str(error), 1000)
        elif name in loaded and not is_lost(error) and not isinstance(error, _NOT_FOR_US):
            for sink in sorted({step.sink_name for step in loaded[name]}):
                if sink not in answers:
                    committer = context.committers.get(sink)
                    if committer is not None:
                        answers[sink] = yield SinkProbe(committer, context.for_committers)
                    else:
                        answers[sink] = yield OutputProbe(context, bucket)
                outage = outage or answers[sink]
        failures[name] = classify_failure(error, outage)
    return failures
