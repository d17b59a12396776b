"""What is sealed of a dataset: the sequence of commit steps that its winning attempts come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distcommit.core.errors import plain_text
from distcommit.core.interfaces.committer import SealRequest
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.steps import CommitStep, Lost, StepContext
from distcommit.core.records.log_records import DatasetState, SealedSequence, SequenceName, TargetEpochs
from distcommit.core.work import BranchResult, DatasetPlan, StagedFile, TaskState, added_content, added_schemas
from distcommit.engine.settings import RunSettings
from distcommit.pipeline.maintenance.expire import Horizon
from distcommit.protocol.paths.output import tombstones_among
from distcommit.protocol.readiness import Ready
from distcommit.steps.registry import dump_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.stores.folders.staging import StagedFiles


def name_of(sequence: SealedSequence) -> SequenceName:
    """The sequence's name."""
    return SequenceName(sequence.dataset_urn, sequence.epoch)


def step_context(settings: RunSettings) -> StepContext:
    """Where the steps of a run have their effects."""
    store, roots = settings.store, settings.store.roots
    return StepContext(store.fs, roots.staging, roots.output, settings.flow.committers, store.store_id)


def has_outputs(settings: RunSettings, context: StepContext, staged: StagedFiles, state: TaskState) -> bool:
    """Whether all files are staged or, with at-least-once, published: another committer of this run may have begun to,
    and what it left half-way is finished here."""
    if staged.has_all_of(state):
        return True
    if not settings.at_least_once:
        return False
    steps = _steps(settings, context, DatasetState(state.dataset_urn), [state], lambda *_: False)
    return not any(isinstance(step.verify(), Lost) for step in steps)


def sequence_of(
    settings: RunSettings,
    context: StepContext,
    state: DatasetState,
    plan: DatasetPlan,
    ready: Ready,
    staged: StagedFiles,
    replacement: StagedFile | None = None,
) -> tuple[SealedSequence, list[CommitStep]]:
    """The sequence of a dataset that is ready, and its steps as they are. With at-least-once it carries none.

    `state`: what the bucket's log says of the dataset. `replacement`: what retires the files that the new ones take the
    place of. Its step is the last: who abandons the sequence takes it away first.
    """
    steps = _steps(settings, context, state, ready.winners, staged.are_whole)
    if replacement is not None:
        steps.append(FsRenameCommitStep.of(context, replacement))
    results = [result for state in ready.winners for result in state.branches]
    files = [(result, _of_records(result)) for result in results]
    sequence = SealedSequence(
        dataset_urn=plan.dataset_urn,
        epoch=settings.epoch,
        low=plan.planned_low,
        high=ready.high,
        steps=() if settings.at_least_once else dump_steps(steps),
        start=plan.start.positions,
        skipped=(*plan.skipped, *(hole for result in results for hole in result.holes)),
        records=sum(result.records_written + result.records_diverted for result in results),
        files=sum(count for _, count in files),
        left_out=plain_text(ready.left_out, 1000),
        content_sum=added_content(result.content_sum for result, count in files if count),
        schemas=added_schemas(*(state.schemas for state in ready.winners)),
        targets=_targets(settings, state, steps),
        replaces=replacement is not None or any(Horizon.of(unit) is not None for unit in plan.work_units),
    )
    return sequence, steps


def _targets(settings: RunSettings, state: DatasetState, steps: Sequence[CommitStep]) -> TargetEpochs:
    """What the targets of all branches have once these steps are done; what they had, of one that gets nothing."""
    branches = [branch.name for branch in settings.flow.branches if branch.sink.committers]
    if not branches:
        return {}
    committed = {step.target_branch for step in steps}
    return {name: (settings.epoch,) if name in committed else state.bases(name) for name in branches}


def _of_records(result: BranchResult) -> int:
    """How many of its files hold records: a tombstone may be gone while the others stay."""
    return len(result.files) - len(tombstones_among([file.final_path for file in result.files]))


def _steps(
    settings: RunSettings,
    context: StepContext,
    known: DatasetState,
    winners: Sequence[TaskState],
    are_whole: Callable[[TaskState, BranchResult], bool],
) -> list[CommitStep]:
    """What the winners come to, branch by branch."""
    by_branch: dict[str, list[tuple[BranchResult, bool, str]]] = {}
    for state in winners:
        for result in state.branches:
            by_branch.setdefault(result.branch, []).append((result, are_whole(state, result), state.attempt))
    steps: list[CommitStep] = []
    in_turn = sorted(by_branch.items(), key=lambda item: (_turn(settings.flow.sink_of(item[0])), item[0]))
    for branch, found in in_turn:
        results, whole, attempts = zip(*found, strict=True)
        urn, bases = known.dataset_urn, known.bases(branch)
        request = SealRequest(urn, settings.epoch, branch, results, whole, bases, attempts)
        steps += settings.flow.sink_of(branch).commit_steps(request, context)
    return steps


def _turn(sink: Sink) -> tuple[bool, bool]:
    """In which order branches are committed: files, which refuse nothing, then what can be taken back, and last what
    can't."""
    return bool(sink.committers), not sink.abilities.can_be_taken_back
