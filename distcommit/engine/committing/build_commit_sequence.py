"""Building of a dataset's commit sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distcommit.core.errors import plain_text
from distcommit.core.interfaces.commit_step import CommitStep, Lost, StepContext
from distcommit.core.interfaces.committer import SealRequest
from distcommit.core.interfaces.sink import Sink
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.maintenance_units import publishes_replacement
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName, TargetEpochs
from distcommit.core.work_units import BranchResult, DatasetPlan, StagedFile, TaskState, merge_schema_ids, sum_content
from distcommit.engine.committing.work_unit_results import build_previous_run
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.output import is_tombstone, tombstones_among
from distcommit.protocol.seal_decision import Ready
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import dump_steps
from distcommit.stores.folders.staging import StagedFiles


def sequence_name(sequence: SealedSequence) -> SequenceName:
    return SequenceName(sequence.dataset_urn, sequence.epoch)


def has_outputs(settings: RunSettings, context: StepContext, staged: StagedFiles, state: TaskState) -> bool:
    """Return whether all files of a task state are staged.

    With at-least-once, published files count as staged, because another committer may have begun.
    """
    if staged.has_all_of(state):
        return True
    if not settings.at_least_once:
        return False
    steps = _steps(settings, context, DatasetState(state.dataset_urn), [state], lambda *_: False)
    return not any(isinstance(step.verify(), Lost) for step in steps)


def build_sequence(
    settings: RunSettings,
    context: StepContext,
    state: DatasetState,
    plan: DatasetPlan,
    ready: Ready,
    staged: StagedFiles,
    replacement: StagedFile | None = None,
    attempts: Sequence[TaskState] = (),
) -> tuple[SealedSequence, list[CommitStep]]:
    """Return the sequence of a dataset that is ready, and its steps. With at-least-once the sequence contains no steps.

    Args:
        state: stored state of the dataset.
        ready: winning attempts.
        staged: staged files of the dataset.
        replacement: staged tombstone that supersedes the files which the new files replace. The tombstone's step comes
            last, so that abandoning the sequence undoes it first.
        attempts: task states of all attempts at the dataset's work units.
    """
    steps = _steps(settings, context, state, ready.winners, staged.is_complete)
    if replacement is not None:
        steps.append(FsRenameCommitStep.of(context, replacement))
    results = [result for state in ready.winners for result in state.branches]
    files = [(result, _data_files(result)) for result in results]
    sequence = SealedSequence(
        dataset_urn=plan.dataset_urn,
        epoch=settings.epoch,
        low=plan.planned_low,
        high=ready.high,
        steps=() if settings.at_least_once else dump_steps(steps),
        start=plan.start.positions,
        skipped=(*plan.skipped, *(hole for result in results for hole in result.holes)),
        records=sum(result.records_written + result.records_rejected for result in results),
        files=sum(count for _, count in files),
        partial_reason=plain_text(ready.partial_reason, 1000),
        content_sum=sum_content(result.content_sum for result, count in files if count),
        schemas=merge_schema_ids(*(state.schemas for state in ready.winners)),
        targets=_targets(settings, state, steps),
        replaces=replacement is not None or any(map(publishes_replacement, plan.work_units)),
        run=build_previous_run(settings.epoch, plan, attempts, ready.winners),
    )
    return sequence, steps


def _targets(settings: RunSettings, state: DatasetState, steps: Sequence[CommitStep]) -> TargetEpochs:
    """Return the epochs that each target's ledger may have after these steps."""
    branches = [branch.name for branch in settings.flow.branches if branch.sink.committers]
    if not branches:
        return {}
    committed = {step.target_branch for step in steps}
    return {name: (settings.epoch,) if name in committed else state.bases(name) for name in branches}


def _data_files(result: BranchResult) -> int:
    return len(result.files) - len(tombstones_among([file.final_path for file in result.files]))


def _steps(
    settings: RunSettings,
    context: StepContext,
    state: DatasetState,
    winners: Sequence[TaskState],
    are_whole: Callable[[TaskState, BranchResult], bool],
) -> list[CommitStep]:
    by_branch: dict[str, list[tuple[BranchResult, bool, str]]] = {}
    for winner in winners:
        for result in winner.branches:
            by_branch.setdefault(result.branch, []).append((result, are_whole(winner, result), winner.attempt))
    steps: list[CommitStep] = []
    in_order = sorted(by_branch.items(), key=lambda item: (_commit_order(settings.flow.sink_of(item[0])), item[0]))
    for branch, entries in in_order:
        results, complete, attempts = zip(*entries, strict=True)
        urn, bases = state.dataset_urn, state.bases(branch)
        request = SealRequest(urn, settings.epoch, branch, results, complete, bases, attempts)
        steps += settings.flow.sink_of(branch).commit_steps(request, context)
    return _tombstones_after_files(steps)


def _tombstones_after_files(steps: Sequence[CommitStep]) -> list[CommitStep]:
    """Move tombstones after the last file, so that abandoning undoes them first."""
    stones = [step for step in steps if _is_tombstone_step(step)]
    if not stones:
        return [*steps]
    files = [index for index, step in enumerate(steps) if isinstance(step, FsRenameCommitStep)]
    end = files[-1] + 1
    return [*(step for step in steps[:end] if not _is_tombstone_step(step)), *stones, *steps[end:]]


def _is_tombstone_step(step: CommitStep) -> bool:
    return isinstance(step, FsRenameCommitStep) and is_tombstone(step.file.final_path)


def _commit_order(sink: Sink) -> tuple[bool, bool]:
    """Return a sink's sort key: files, then targets that can revoke a commit, then others."""
    return bool(sink.committers), not sink.abilities.can_roll_back
