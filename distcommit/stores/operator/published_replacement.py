"""The check before an operator accepts a sequence that replaces published files."""

from __future__ import annotations

from contextlib import suppress

from distcommit.core.errors import ConflictError, CorruptError, UnknownStepTypeError, UnknownVersionError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext, Verdict
from distcommit.core.records.sequences import SealedSequence
from distcommit.protocol.paths.output import is_compaction_tombstone, is_tombstone
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.state.job_store import JobStore


def require_published_replacement(store: JobStore, sequence: SealedSequence) -> None:
    """Check that the tombstone of a sequence is published, if the sequence replaces files. If it compacts files, check
    all of its files, because the tombstone supersedes the only other copy of their records.

    Raises:
        ConflictError: if such a file is not published.
    """
    if any(batch.type_name != FsRenameCommitStep.type_name for batch in sequence.steps):
        return  # it may be of a kind that cannot be abandoned
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    with suppress(UnknownStepTypeError, UnknownVersionError, CorruptError):  # only accept can end these
        files: list[FsRenameCommitStep] = []
        for step in load_steps(sequence.steps, context):
            if isinstance(step, FsRenameCommitStep):
                if is_tombstone(step.file.final_path) and step.verify() is not Verdict.DONE:
                    raise _unpublished(
                        sequence, step, "tombstone", "its records are read again; accept would leave both"
                    )
                files.append(step)
        if any(is_compaction_tombstone(step.file.final_path) for step in files):
            for step in files:
                if step.verify() is not Verdict.DONE:
                    raise _unpublished(
                        sequence, step, "new file", "the old files stay; accept would lose their records"
                    )


def _unpublished(sequence: SealedSequence, step: CommitStep, part: str, reason: str) -> ConflictError:
    return ConflictError(
        f"the sequence replaces files, and its {part} is not published",
        id="TOMBSTONE_NOT_PUBLISHED",
        dataset=sequence.dataset_urn,
        epoch=sequence.epoch,
        found=repr(step),
        todo=f"release the dataset with abandon: {reason}",
    )
