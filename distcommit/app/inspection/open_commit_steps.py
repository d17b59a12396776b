"""Verifies the commit steps of sealed sequences that are not closed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from distcommit.core.errors import ConfigurationError, DistcommitError, error_text
from distcommit.core.interfaces.commit_step import CommitStep, Lost, StepContext, Verdict
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.protocol.paths.output import is_compaction_tombstone, is_tombstone
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.state.job_store import JobStore

_CHECKED_AT_COMMIT = "its target is asked at the commit"


class StepRow(msgspec.Struct, frozen=True):
    """A commit step.

    Attributes:
        kind: registered type of the step.
        subject: step in words, such as the file that it publishes.
        state: DONE, PENDING, LOST, or UNKNOWN if the step can't be read or verified.
        reason: for LOST, the expected and the actual state; for UNKNOWN, the error; for PENDING, when the step is
            verified. Otherwise empty.
        target_missing: for LOST: whether both the staged file and its target are missing.
        is_permanent: whether the type of the step does not allow its sequence to be abandoned.
        replaces: whether the step publishes a tombstone, which names the files that the sequence replaces.
        compacts: whether the step publishes a tombstone that names compacted files.
    """

    kind: str
    subject: str
    state: str
    reason: str = ""
    target_missing: bool = False
    is_permanent: bool = False
    replaces: bool = False
    compacts: bool = False


class SequenceSteps(msgspec.Struct, frozen=True):
    """The sealed sequence of a dataset.

    Attributes:
        dataset: dataset URN.
        bucket: number of the bucket.
        epoch: epoch of the run that sealed the sequence.
        status: status of the dataset.
        held: whether the sequence waits for the decision of its run to publish all datasets or none.
        records: records in the sequence.
        files: files in the sequence.
        failed_runs: number of runs that failed to replay the sequence.
        reason: why the last run did not close the sequence; empty if no run has tried.
        counts: number of steps by `StepRow.state`; states without a step are missing.
        steps: steps in the order of the seal.
    """

    dataset: str
    bucket: int
    epoch: int
    status: str
    held: bool
    records: int
    files: int
    failed_runs: int
    reason: str
    counts: dict[str, int]
    steps: list[StepRow]


class StepsResult(NotebookTable, msgspec.Struct, frozen=True):
    """The sealed sequences that are not closed.

    Attributes:
        job: name of the job.
        sequences: the sequences, by dataset URN.
        unreadable: error of each unreadable bucket log, by its name.
        sequences_omitted: number of sequences beyond the limit of the request.
    """

    job: str
    sequences: list[SequenceSteps]
    unreadable: dict[str, str]
    sequences_omitted: int = 0


def read_steps(store: JobStore, context: StepContext, dataset: str | None = None, most: int = 0) -> StepsResult:
    """Verify each step of sealed sequences that are not closed. This takes one check for each file.

    Args:
        context: folders and committers at which steps take effect.
        dataset: limit the result to this dataset.
        most: maximum number of datasets, by name; 0 for no limit.

    Raises:
        ConfigurationError: if the store does not know the dataset.
    """
    buckets = range(store.buckets) if dataset is None else [store.bucket_of(dataset)]
    open_states: list[tuple[int, DatasetState]] = []
    unreadable: dict[str, str] = {}
    for bucket in buckets:
        try:
            states = store.bucket_log(bucket).refresh().datasets
        except (DistcommitError, OSError) as error:
            unreadable[f"bucket {bucket}"] = str(error)
            continue
        if dataset is not None and dataset not in states:
            raise unknown_dataset(store, dataset)
        selected = states.values() if dataset is None else [states[dataset]]
        open_states += [(bucket, state) for state in selected if state.open is not None]
    open_states.sort(key=lambda pair: pair[1].dataset_urn)
    shown = open_states[:most] if most else open_states
    sequences = [_sequence(bucket, state, context) for bucket, state in shown]
    return StepsResult(store.job, sequences, unreadable, len(open_states) - len(shown))


def unknown_dataset(store: JobStore, urn: str) -> ConfigurationError:
    return ConfigurationError(
        "the store does not know this dataset",
        id="DATASET_UNKNOWN",
        dataset=urn,
        store=store.roots.store,
        todo="give its URN as `distcommit dataset list` shows it",
    )


def _sequence(bucket: int, state: DatasetState, context: StepContext) -> SequenceSteps:
    assert state.open is not None
    sequence = state.open.sequence
    rows = list(_rows(state, context))
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    return SequenceSteps(
        dataset=state.dataset_urn,
        bucket=bucket,
        epoch=sequence.epoch,
        status=state.status.value,
        held=state.open.held,
        records=sequence.records,
        files=sequence.files,
        failed_runs=len(state.tried_epochs),
        reason=state.open.reason,
        counts=counts,
        steps=rows,
    )


def _rows(state: DatasetState, context: StepContext) -> Iterator[StepRow]:
    assert state.open is not None
    for batch in state.open.sequence.steps:
        try:
            steps = list(load_steps([batch], context))
        except DistcommitError as error:
            yield StepRow(batch.type_name, "its steps can't be read", "UNKNOWN", str(error))
            continue
        if not steps:
            continue
        try:
            answers = type(steps[0]).verify_all(steps)
        except Exception as error:  # noqa: BLE001 - a step class may be the user's
            yield from (StepRow(step.type_name, _described(step), "UNKNOWN", error_text(error)) for step in steps)
            continue
        yield from (_row(step, answer) for step, answer in zip(steps, answers, strict=True))


def _described(step: CommitStep) -> str:
    text, name = repr(step), type(step).__name__
    is_call = text.startswith(f"{name}(") and text.endswith(")")
    return f"{step.type_name} {text[len(name) + 1 : -1]}" if is_call else text


def _is_gone(step: CommitStep) -> bool:
    try:
        return step.is_gone()
    except Exception:  # noqa: BLE001 - a step class may be the user's
        return False


def _row(step: CommitStep, answer: Verdict | Lost) -> StepRow:
    lasts = not step.can_be_abandoned()
    final_path = step.file.final_path if isinstance(step, FsRenameCommitStep) else ""
    replaces, compacts = is_tombstone(final_path), is_compaction_tombstone(final_path)
    if isinstance(answer, Lost):
        reason = f"expected {answer.expected}; found {answer.actual}"
        return StepRow(step.type_name, _described(step), "LOST", reason, _is_gone(step), lasts, replaces, compacts)
    later = _CHECKED_AT_COMMIT if step.sink_name and answer is Verdict.PENDING else ""
    return StepRow(step.type_name, _described(step), answer.name, later, False, lasts, replaces, compacts)
