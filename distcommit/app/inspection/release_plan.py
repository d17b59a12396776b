"""What a release would do to each dataset that waits for a person, as things stand; nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from distcommit.app.inspection.status import WAITING, DatasetStatusRow, StatusResult
from distcommit.app.inspection.steps import SequenceSteps, StepsResult
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.stores.operator.operator_actions import Release

_WAY = re.compile(r"To do: release the dataset with (abandon|restart)\b|(?:; |To do: )(abandon) the dataset\b")


def way_out(reason: str) -> Release | None:
    """Return how the reason of a quarantined dataset says that it must be released, if it does."""
    found = _WAY.search(reason)
    return Release(found[1] or found[2]) if found else None


class ReleaseRow(msgspec.Struct, frozen=True):
    """A dataset: what becomes of it. `acts`: whether anything is done to it at all. `records`: that are sealed."""

    dataset: str
    status: str
    records: int
    does: str
    acts: bool


class ReleasePlan(msgspec.Struct, frozen=True):
    """What `dataset release` would do now, in that way. It changes as runs and people go on. `unreadable`: logs that it
    would leave alone, with why."""

    job: str
    how: Release
    rows: list[ReleaseRow]
    unreadable: dict[str, str]


def plan_release(
    status: StatusResult,
    steps: StepsResult,
    how: Release,
    dataset: str | None = None,
    *,
    closed: Mapping[str, str] = {},
    bucket_of: Callable[[str], int] = lambda _: -1,
) -> ReleasePlan:
    """The plan, from what is stored of each dataset and what its steps say.

    Args:
        status: of the job.
        steps: of these datasets' sequences.
        how: they are to be released.
        dataset: this one alone; None: all that wait, of which only those are abandoned that can't be finished as they
            are.
        closed: logs that nobody can act on, as `app.inspection.refusals.closed_to_people` has them.
        bucket_of: says which bucket a dataset is in.
    """
    sealed = {sequence.dataset: sequence for sequence in steps.sequences}
    wanted = [row for row in status.datasets if (row.status in WAITING if dataset is None else row.dataset == dataset)]
    rows: list[ReleaseRow] = []
    for row in wanted:
        if f"bucket {bucket_of(row.dataset)}" in closed:
            does, acts = "left alone: its bucket's log can't be read", False
        else:
            does, acts = _fate(row, sealed.get(row.dataset), how, by_name=dataset is not None)
        rows.append(ReleaseRow(row.dataset, row.status, row.pending_records, does, acts))
    return ReleasePlan(status.job, how, rows, dict(closed))


def _fate(row: DatasetStatusRow, mine: SequenceSteps | None, how: Release, *, by_name: bool) -> tuple[str, bool]:
    """What is done, and whether that is anything."""
    if row.status == "stopped":
        is_retry = how is Release.RETRY
        return "the next run reads it again" if is_retry else "refused: nothing of it is sealed (retry)", is_retry
    if row.status not in WAITING or mine is None:
        return f"refused: it is {row.status}", False
    if how is Release.RETRY and row.status == "revoking":
        return "refused: it is being abandoned (abandon or accept)", False
    steps, done = sum(mine.counts.values()), mine.counts.get("DONE", 0)
    lost = next((step for step in mine.steps if step.state == "LOST"), None)
    match how:
        case Release.RETRY if lost is not None:
            return f"the next run quarantines it again: {lost.why}", True
        case Release.RETRY:
            return f"the next run executes what is missing: {done:,} of {steps:,} steps are done", True
        case Release.ACCEPT if row.status == "quarantined" and _is_read_beside(mine):
            return "refused: what says which files it takes the place of is not published (abandon)", False
        case Release.ACCEPT:
            left = f": what {steps - done:,} of {steps:,} steps had to publish is lost" if done < steps else ""
            return f"it counts as done{left}", True
    if any(step.lasts for step in mine.steps):
        return "refused: it has a step of a kind that can't be abandoned (retry or accept)", False
    if not by_name and not _needs(row, mine, how):
        return f"left alone: its reason does not say so ({how} it by its name)", False
    again = "its records" if how is Release.ABANDON else "the dataset from its beginning"
    return f"{done:,} of {steps:,} steps are taken back, and the next run reads {again} again", True


def _needs(row: DatasetStatusRow, mine: SequenceSteps, how: Release) -> bool:
    """Whether a dataset can't be finished as it is, and that way resolves it."""
    if (way := way_out(row.reason)) is not None and row.status == "quarantined":
        return way is how
    return how is Release.ABANDON and (row.status == "revoking" or any(step.gone for step in mine.steps))


def _is_read_beside(mine: SequenceSteps) -> bool:
    """Whether it would be read beside what it takes the place of, were it done as it is: files alone can say so."""
    of_files = all(step.kind == FsRenameCommitStep.type_name for step in mine.steps)
    return of_files and any(step.replaces and step.state in ("PENDING", "LOST") for step in mine.steps)
