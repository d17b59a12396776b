"""Sequences that are not closed, with the state of each of their steps. Looks at store, staging and output; changes
nothing."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.interfaces.steps import CommitStep, Lost, StepContext, Verdict
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.notebook import Shown
from distcommit.protocol.paths.output import is_tombstone
from distcommit.steps.registry import load_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.stores.state.job_store import JobStore

_ASKED_LATER = "its target is asked as it is committed"


class StepRow(msgspec.Struct, frozen=True):
    """One step. `state`: DONE, PENDING, LOST, or UNKNOWN where it can't be read or looked at; `why`: what was expected
    and found, or what keeps it from being told. `gone`: of a LOST one, whether nothing is at its target either.
    `lasts`: whether it is of a kind that can't be abandoned; `replaces`: whether it says what the sequence takes the
    place of."""

    kind: str
    what: str
    state: str
    why: str = ""
    gone: bool = False
    lasts: bool = False
    replaces: bool = False


class SequenceSteps(msgspec.Struct, frozen=True):
    """A dataset's sequence, sealed by the run of `epoch`. `status` and `reason`: the dataset's; `held`: until its run
    is decided to be published. `counts`: steps by state."""

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


class StepsResult(Shown, msgspec.Struct, frozen=True):
    """Sequences that are not closed, and buckets whose log can't be read. `left_out`: how many more there are."""

    job: str
    sequences: list[SequenceSteps]
    unreadable: dict[str, str]
    left_out: int = 0


def read_steps(store: JobStore, context: StepContext, dataset: str | None = None, most: int = 0) -> StepsResult:
    """Verifies each step of what is sealed and not closed: O(files of these).

    Args:
        store: the store.
        context: where the steps' effects go.
        dataset: of this dataset alone.
        most: of so many datasets, those by name first; 0 for all.

    Raises:
        ConfigurationError: if the store does not know the dataset.
    """
    buckets = range(store.buckets) if dataset is None else [store.bucket_of(dataset)]
    found: list[tuple[int, DatasetState]] = []
    unreadable: dict[str, str] = {}
    for bucket in buckets:
        try:
            states = store.bucket_log(bucket).refresh().datasets
        except (DistcommitError, OSError) as error:
            unreadable[f"bucket {bucket}"] = str(error)
            continue
        if dataset is not None and dataset not in states:
            raise unknown_dataset(store, dataset)
        wanted = states.values() if dataset is None else [states[dataset]]
        found += [(bucket, state) for state in wanted if state.open is not None]
    found.sort(key=lambda pair: pair[1].dataset_urn)
    shown = found[:most] if most else found
    sequences = [_sequence(bucket, state, context) for bucket, state in shown]
    return StepsResult(store.job, sequences, unreadable, len(found) - len(shown))


def unknown_dataset(store: JobStore, urn: str) -> ConfigurationError:
    """The error that a name is none of a dataset's."""
    return ConfigurationError(
        "the store does not know this dataset",
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
            yield from (StepRow(s.type_name, _told(s), "UNKNOWN", f"{type(error).__name__}: {error}") for s in steps)
            continue
        yield from (_row(step, answer) for step, answer in zip(steps, answers, strict=True))


def _told(step: CommitStep) -> str:
    """What a step says of itself, by the name that its type is stored under."""
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
    replaces = isinstance(step, FsRenameCommitStep) and is_tombstone(step.file.final_path)
    if isinstance(answer, Lost):
        why = f"expected {answer.expected}; found {answer.found}"
        return StepRow(step.type_name, _told(step), "LOST", why, _is_gone(step), lasts, replaces)
    later = _ASKED_LATER if step.sink_name and answer is Verdict.PENDING else ""
    return StepRow(step.type_name, _told(step), answer.name, later, lasts=lasts, replaces=replaces)
