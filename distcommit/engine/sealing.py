"""What is sealed of a dataset: the sequence of commit steps that its winning attempts come to."""

from __future__ import annotations

from collections.abc import Sequence

from distcommit.engine.settings import RunSettings
from distcommit.model.errors import plain_text
from distcommit.model.log_records import SealedSequence, SequenceName
from distcommit.model.sink import CommitRequest
from distcommit.model.steps import CommitStep, Lost, StepContext
from distcommit.model.work import DatasetPlan, TaskState
from distcommit.protocol.readiness import Ready
from distcommit.steps.registry import dump_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.steps.sink import SinkCommitStep
from distcommit.stores.staging import StagedFiles


def name_of(sequence: SealedSequence) -> SequenceName:
    """The sequence's name."""
    return SequenceName(sequence.dataset_urn, sequence.epoch)


def step_context(settings: RunSettings) -> StepContext:
    """Where the steps of a run have their effects."""
    roots = settings.store.roots
    return StepContext(settings.store.fs, roots.staging, roots.output, settings.flow.own_sink)


def has_outputs(settings: RunSettings, context: StepContext, staged: StagedFiles, state: TaskState) -> bool:
    """Whether all outputs are staged or, with at-least-once, published: another committer of this run may have begun
    to, and what it left half-way is finished here."""
    if staged.has_all_of(state):
        return True
    if not settings.at_least_once:
        return False
    steps = FsRenameCommitStep.of_all(context, state.outputs)
    return not any(isinstance(answer, Lost) for answer in FsRenameCommitStep.verify_all(steps))


def sequence_of(
    settings: RunSettings, context: StepContext, plan: DatasetPlan, ready: Ready, staged: StagedFiles
) -> tuple[SealedSequence, list[CommitStep]]:
    """The sequence of a dataset that is ready, and its steps as they are. With at-least-once it carries none."""
    steps: list[CommitStep] = []
    for state in ready.winners:
        steps += FsRenameCommitStep.of_all(context, state.outputs, whole=staged.are_whole(state))
    files, records = len(steps), sum(file.records for state in ready.winners for file in state.outputs)
    if context.sink is not None:
        records = sum(state.records_written + state.records_diverted for state in ready.winners)
        steps += _sink_steps(settings, context, plan.dataset_urn, ready.winners)
    sequence = SealedSequence(
        dataset_urn=plan.dataset_urn,
        epoch=settings.epoch,
        low=plan.planned_low,
        high=ready.high,
        steps=() if settings.at_least_once else dump_steps(steps),
        start=plan.start.positions,
        skipped=(*plan.skipped, *(hole for state in ready.winners for hole in state.holes)),
        records=records,
        files=files,
        left_out=plain_text(ready.left_out, 500),
    )
    return sequence, steps


def _sink_steps(
    settings: RunSettings, context: StepContext, urn: str, winners: Sequence[TaskState]
) -> list[CommitStep]:
    """The step that commits what writers of the user's own sink have prepared; none if they prepared nothing."""
    infos = tuple(info for state in winners for info in state.commit_infos)
    if context.sink is None or not infos:
        return []
    return [SinkCommitStep(context.sink, CommitRequest(urn, settings.epoch, infos))]
