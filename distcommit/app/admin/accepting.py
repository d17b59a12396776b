"""The positions that are lost by accepting a sequence."""

from __future__ import annotations

from distcommit.app.auditing.joined import Branches
from distcommit.app.auditing.ledgers import not_done, open_ledgers
from distcommit.app.auditing.published import read_folder
from distcommit.core.records.log_records import SealedSequence
from distcommit.core.urn import folder_of
from distcommit.core.work import SkippedRange
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.offsets import offsets_of
from distcommit.stores.state.job_store import JobStore


def not_published(store: JobStore, flow: TaskFlow, who: str, sequence: SealedSequence) -> tuple[SkippedRange, ...]:
    """Return the positions of a sequence that a branch lacks, by the published files and ledgers.

    None if the source has no offsets, or a ledger can't be read. The audit then reports missing records as gaps.

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
        rows = [each.row for each in ledgers.of(folder.name)]
        files = [file for file in folder.files if file.footer.epoch == sequence.epoch]
        lost = window.difference(Branches(files, rows).joined(incarnation).covered)
    reason = f"not published when epoch {sequence.epoch} was accepted ({who})"
    return tuple(
        SkippedRange(partition, low, high, reason, incarnation=incarnation)
        for partition in lost.partitions()
        for low, high in lost.ranges(partition)
    )
