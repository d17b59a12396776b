"""The check before accepting a sequence that replaces files."""

from __future__ import annotations

from contextlib import suppress

from distcommit.core.errors import ConflictError, CorruptError, UnknownStepTypeError, UnknownVersionError
from distcommit.core.interfaces.commit_step import StepContext, Verdict
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.protocol.paths.output import is_compaction_tombstone, is_tombstone
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.state.job_store import JobStore


def require_published_replacement(store: JobStore, sequence: SealedSequence, *, is_revoking: bool) -> None:
    """Check that the tombstone of a sequence that replaces files is published. If the sequence compacts files, all
    of them must be published, because the tombstone supersedes the only other copy of their records.

    If the sequence is being abandoned, accept is refused, because an interrupted abandon may have deleted the tombstone
    or a new file, or may do so later. The abandon can always be repeated, because the sequence only renames files. The
    model is `tests/spec/replace_model.py`.

    Raises:
        ConflictError: if such a file is not published, or the sequence is being abandoned.
    """
    if any(batch.type_name != FsRenameCommitStep.type_name for batch in sequence.steps):
        return  # it may be of a kind that cannot be abandoned
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    with suppress(UnknownStepTypeError, UnknownVersionError, CorruptError):  # only accept can end these
        files = [step for step in load_steps(sequence.steps, context) if isinstance(step, FsRenameCommitStep)]
        is_compaction = any(is_compaction_tombstone(step.file.final_path) for step in files)
        reason = _LOST if is_compaction else _DOUBLED
        for step in files:
            is_stone = is_tombstone(step.file.final_path)
            if is_stone and is_revoking:
                raise _refused(sequence, "the sequence replaces files, and is being abandoned", repr(step), reason)
            if is_revoking or not (is_compaction or is_stone) or step.verify() is Verdict.DONE:
                continue
            part = "tombstone" if is_stone else "new file"
            problem = f"the sequence replaces files, and its {part} is not published"
            raise _refused(sequence, problem, repr(step), reason)


_DOUBLED = "its records are read again; accept would leave both"
_LOST = "the old files stay; accept would lose their records"


def _refused(sequence: SealedSequence, problem: str, found: str, reason: str) -> ConflictError:
    return ConflictError(
        problem,
        id="TOMBSTONE_NOT_PUBLISHED",
        dataset=sequence.dataset_urn,
        epoch=sequence.epoch,
        found=found,
        todo=f"release the dataset with abandon: {reason}",
    )
