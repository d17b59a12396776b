"""Predicts the effect of `dataset release` on each dataset that an operator must release."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from distcommit.app.inspection.job_status import WAITING, DatasetStatusRow, StatusResult
from distcommit.app.inspection.open_commit_steps import SequenceSteps, StepsResult
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.stores.operator.operator_actions import Release

_REMEDY = re.compile(r"To do: release the dataset with (abandon|restart)\b|(?:; |To do: )(abandon) the dataset\b")


def remedy_of(reason: str) -> Release | None:
    """Return the kind of release that a quarantine reason recommends; None if it recommends none."""
    match = _REMEDY.search(reason)
    return Release(match[1] or match[2]) if match else None


class ReleaseRow(msgspec.Struct, frozen=True):
    """The effect of a release on a dataset.

    Attributes:
        dataset: dataset URN.
        status: the dataset's status in its bucket log, or `stopped`.
        records: records in the sealed sequence; 0 without one.
        effect: effect in words, or why the release is refused or has none.
        changes_dataset: whether the release changes the dataset.
    """

    dataset: str
    status: str
    records: int
    effect: str
    changes_dataset: bool


class ReleasePlan(msgspec.Struct, frozen=True):
    """The effects of a `dataset release` command.

    Attributes:
        job: name of the job.
        release: kind of release.
        rows: selected datasets, by URN.
        unreadable: why the command would skip a log, by the name of the log.
    """

    job: str
    release: Release
    rows: list[ReleaseRow]
    unreadable: dict[str, str]


def plan_release(
    status: StatusResult,
    steps: StepsResult,
    release: Release,
    dataset: str | None = None,
    *,
    closed: Mapping[str, str] = {},
    bucket_of: Callable[[str], int] = lambda _: -1,
) -> ReleasePlan:
    """Return the effect of a release on each selected dataset, or why it would be refused.

    Args:
        dataset: the dataset to release. None selects all with a status in `WAITING`; abandon and restart then change
            only datasets whose reason or state calls for it.
        closed: why logs reject operator actions, by the log's name (`bucket 3`); from `closed_buckets`.
        bucket_of: returns the bucket of a dataset; needed with `closed`.
    """
    sealed = {sequence.dataset: sequence for sequence in steps.sequences}
    selected = [
        row for row in status.datasets if (row.status in WAITING if dataset is None else row.dataset == dataset)
    ]
    rows: list[ReleaseRow] = []
    for row in selected:
        if f"bucket {bucket_of(row.dataset)}" in closed:
            does, acts = "left alone: its bucket's log can't be read", False
        else:
            does, acts = _effect(row, sealed.get(row.dataset), release, by_name=dataset is not None)
        rows.append(ReleaseRow(row.dataset, row.status, row.pending_records, does, acts))
    return ReleasePlan(status.job, release, rows, dict(closed))


def _effect(
    row: DatasetStatusRow, sequence: SequenceSteps | None, release: Release, *, by_name: bool
) -> tuple[str, bool]:
    if row.status == "stopped":
        is_retry = release is Release.RETRY
        return "the next run reads it again" if is_retry else "refused: nothing of it is sealed (retry)", is_retry
    if row.status not in WAITING or sequence is None:
        return f"refused: it is {row.status}", False
    if release is Release.RETRY and row.status == "revoking":
        ways = "abandon" if _refusal_to_accept(row, sequence) else "abandon or accept"
        return f"refused: it is being abandoned ({ways})", False
    steps, done = sum(sequence.counts.values()), sequence.counts.get("DONE", 0)
    lost_step = next((step for step in sequence.steps if step.state == "LOST"), None)
    match release:
        case Release.RETRY if lost_step is not None:
            return f"the next run quarantines it again: {lost_step.reason}", True
        case Release.RETRY:
            return f"the next run executes the missing steps: {done:,} of {steps:,} are done", True
        case Release.ACCEPT if refusal := _refusal_to_accept(row, sequence):
            return f"refused: {refusal} (abandon)", False
        case Release.ACCEPT:
            lost_note = f": what {steps - done:,} of {steps:,} steps had to publish is lost" if done < steps else ""
            return f"it counts as done{lost_note}", True
    if any(step.is_permanent for step in sequence.steps):
        return "refused: it has a step of a kind that can't be abandoned (retry or accept)", False
    if not by_name and not _needs(row, sequence, release):
        return f"left alone: its reason does not name this way ({release} it by its name)", False
    reread = "its records" if release is Release.ABANDON else "the dataset from its beginning"
    return f"{done:,} of {steps:,} steps are taken back, and the next run reads {reread} again", True


def _needs(row: DatasetStatusRow, sequence: SequenceSteps, release: Release) -> bool:
    if (way := remedy_of(row.reason)) is not None and row.status == "quarantined":
        return way is release
    return release is Release.ABANDON and (
        row.status == "revoking" or any(step.target_missing for step in sequence.steps)
    )


def _refusal_to_accept(row: DatasetStatusRow, sequence: SequenceSteps) -> str:
    """Return why a sequence that replaces or compacts files cannot be accepted; empty if it can be. Only sequences that
    publish nothing but files are refused.
    """
    if any(step.kind != FsRenameCommitStep.type_name for step in sequence.steps):
        return ""
    if row.status != "quarantined":
        replaces = any(step.replaces for step in sequence.steps)
        return "it replaces files and is being abandoned; accept would lose or double records" if replaces else ""
    open_steps = [step for step in sequence.steps if step.state in ("PENDING", "LOST")]
    if open_steps and any(step.compacts for step in sequence.steps):
        return "it compacts files and is not published as a whole"
    if any(step.replaces for step in open_steps):
        return "the tombstone of the files that it replaces is not published"
    return ""
