"""Commit steps whose stored rows an execution has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from distcommit.core.errors import DistcommitError, error_text
from distcommit.core.interfaces.commit_step import CommitStep
from distcommit.core.records.sealed_sequences import SealedSequence, StepBatch
from distcommit.steps.step_registry import dump_steps

MAX_CHANGES: Final = 100
"""Maximum number of changes recorded for a sequence."""
MAX_BYTES: Final = 1024 * 1024
"""Size to which a batch of steps may grow from a smaller one."""


def changed_batches(sequence: SealedSequence, changes: int, steps: Sequence[CommitStep]) -> dict[int, StepBatch]:
    """Return the batches of an executed sequence whose rows have changed, by index.

    Args:
        sequence: the sequence as it was executed.
        changes: the number of changes recorded for the sequence.
        steps: the steps of the sequence after the execution.

    Raises:
        DistcommitError: if the change cannot be recorded. The recorded steps stay valid.
    """

    def rejected(expected: str, actual: str) -> DistcommitError:
        return rejected_change(sequence.dataset_urn, sequence.epoch, expected, actual)

    try:
        kinds = {type(step).type_name for step in steps if step.is_changed}
        if not kinds:
            return {}
        changed = {
            index: batch
            for index, (batch, before) in enumerate(zip(dump_steps(steps), sequence.steps, strict=True))
            if batch.type_name in kinds and batch != before
        }
    except Exception as error:  # a step class may be the user's
        raise rejected("plain data", error_text(error)) from error
    if changed and changes >= MAX_CHANGES:
        raise rejected(f"at most {MAX_CHANGES} changes", f"change {changes + 1}")
    for index, batch in changed.items():
        size, limit = len(batch.rows), max(MAX_BYTES, len(sequence.steps[index].rows))
        if size > limit:
            raise rejected(f"at most {limit:,} bytes", f"{size:,} bytes")
    return changed


def rejected_change(dataset_urn: str, epoch: int, expected: str, actual: str) -> DistcommitError:
    return DistcommitError(
        "changed commit infos cannot be recorded",
        id="COMMIT_INFOS_REJECTED",
        dataset=dataset_urn,
        epoch=epoch,
        expected=expected,
        found=actual,
        todo="correct the infos that the sink's committer returns with RetryLater; the commit is repeated with the last"
        " recorded infos",
    )
