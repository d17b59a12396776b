"""Abandon many quarantined datasets at once, and find the positions that an accepted sequence loses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distcommit.app.auditing.files.read_published_files import read_folder
from distcommit.app.auditing.offsets.joined_branches import Branches
from distcommit.app.auditing.target_ledgers import not_done, open_ledgers
from distcommit.app.inspection.dry_runs.release_plan import ReleasePlan
from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import DistcommitError
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.work_units import SkippedRange
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.offset_sets import offsets_of
from distcommit.stores.state.job_store import JobStore


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The result of a release of many datasets.

    Attributes:
        datasets: URNs of the datasets that were abandoned or restarted.
        unreadable: reason for each bucket that was skipped, by the name of its log.
    """

    datasets: list[str]
    unreadable: dict[str, str]


def abandon_all(plan: ReleasePlan, abandon: Callable[[str], None]) -> Abandoned:
    """Abandon or restart each dataset that the plan changes, and leave the others as they are.

    Args:
        plan: the plan of a release with `abandon` or `restart`.
        abandon: abandons or restarts one dataset.

    Raises:
        DistcommitError, OSError: the first failure, after all datasets were tried.
    """
    todo = [row.dataset for row in plan.rows if row.changes_dataset]
    failed: list[DistcommitError | OSError] = []
    for urn in todo:
        try:
            abandon(urn)
        except (DistcommitError, OSError) as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return Abandoned(todo, plan.unreadable)


def not_published(store: JobStore, flow: TaskFlow, user: str, sequence: SealedSequence) -> tuple[SkippedRange, ...]:
    """Return the input positions of a sequence that published files and ledgers do not prove to be published, rejected
    or filtered in every branch.

    If the source has no offsets or a ledger can't be read, no ranges are returned. The audit then reports missing
    records as gaps.

    Raises:
        DistcommitError, OSError: if published files can't be read.
    """
    window = not_done(sequence).difference(offsets_of(sequence.skipped))
    if flow.source.provenance is None or not window.count():
        return ()
    folder = read_folder(store.fs, store.roots.output, folder_of(sequence.dataset_urn))
    incarnation = sequence.high.incarnation if sequence.high else ""
    with open_ledgers(flow, store) as ledgers:
        if ledgers.unreadable:
            return ()
        rows = [ledger.row for ledger in ledgers.of(folder.name)]
        files = [file for file in folder.files if file.footer.epoch == sequence.epoch]
        lost_offsets = window.difference(Branches(files, rows).joined(incarnation).covered)
    reason = f"not published when epoch {sequence.epoch} was accepted ({user})"
    return tuple(
        SkippedRange(partition, low, high, reason, incarnation=incarnation)
        for partition in lost_offsets.partitions()
        for low, high in lost_offsets.ranges(partition)
    )
