"""The findings of an audit."""

from __future__ import annotations

from typing import Literal

import msgspec

from distcommit.app.auditing.offsets.shared_positions import SharedRange
from distcommit.app.auditing.partition_audit import AuditedRecords, AuditRow, CountedRow
from distcommit.core.support.notebook_tables import NotebookTable

LISTED = 100
_Kind = Literal["unknown_files", "altered", "ledger_mismatches", "unproven_files", "orphaned_files", "sweepable_files"]


class AuditResult(NotebookTable, msgspec.Struct):
    """The findings of an audit. Lists have the first hundred findings of a kind; counts include all.

    A record that several branches lack, filter or reject counts once; `partitions` has the numbers of each branch.

    Attributes:
        exact: whether the audit has found none of these: `gaps`, `duplicates`, `past_watermark`, `pending`,
            `unreadable`, `unknown_files`, `unrecorded_files`, `orphaned_files`, `altered`, `ledger_mismatches`.
        deep: whether all records were read, not only the footers of files.
        datasets: number of audited datasets.
        files: number of live files in the output, including error files and foreign ones.
        records: published records. Several may come from one input record.
        duplicates: records that are published or rejected more than once, or have two outcomes.
        gaps: input records below the watermark that are missing without a recorded reason.
        past_watermark: published or rejected input records at or above the watermark, or below the first position read.
        skipped: positions that were skipped because their records are lost.
        holes: positions at which the source has no record.
        rejected: input records that a branch rejected.
        earlier_incarnations: files and ledger entries from a source that was recreated later (an older Kafka topic id).
            Their offsets are compared with the last position in that older source.
        pending: datasets that are not idle, with their status. Only `files` includes files of their sealed sequences.
        unknown_files: files that are damaged or that no sequence of the store published, each with the reason.
        unknown_files_count: number of all unknown files.
        orphaned_files: files and folders in staging that no sequence needs and no run deletes, each with the reason.
        orphaned_files_count: number of all orphaned files.
        sweepable_files: files of earlier attempts in staging, which the next run deletes. This is not a fault.
        sweepable_files_count: number of all sweepable files.
        shared_positions: source positions that two datasets have published. They are also counted as duplicates.
        shared_positions_count: number of source positions in all shared ranges.
        unreadable: logs and ledgers that could not be read, each with the error.
        partitions: one row for each source partition and branch of a source with offsets.
        at_least_once: whether the job guarantees at-least-once delivery only, so that duplicates are allowed.
        passed: whether the audit is `exact`, or, with `at_least_once`, has found only `duplicates`, `past_watermark` or
            `unrecorded_files`.
        unrecorded_files: files that no DONE record names, if delivery is at least once.
        altered: altered output, each with the reason: files with other records than were written (with `deep`),
            datasets whose files or replacement differ from the sealed ones, missing files without a gap in the offsets,
            missing rows at a target, or an output of another store or an older run.
        altered_count: number of all entries of `altered`.
        files_without_sum: files without a content sum. Only the offsets of their records are verified.
        filtered: input records that constructs filtered.
        superseded_files: superseded files and tombstones that are not deleted yet, except the tombstone of the newest
            replacement. No other count includes them.
        ledger_rows: rows in the targets' ledgers, one for each dataset and branch.
        ledger_mismatches: ledger rows that can't be read or counted, whose dataset the store does not know, or whose
            epoch is newer than the dataset's sequences.
        ledger_mismatches_count: number of all ledger mismatches.
        replaced: input records whose output a replacing publisher has replaced.
        expired: input records in files that `distcommit dataset expire` has deleted.
        counted_branches: for sources without offsets: rejected and filtered records of each branch, counted from its
            files.
        skipped_ranges: ranges of skipped positions, each with the dataset and the cause.
        unproven_files: files for which no stored state proves completeness, grouped by dataset or bucket. `exact` does
            not depend on them.
        unproven_files_count: number of all entries of `unproven_files`.
        rejected_records: records in error files. A record counts once for each branch that rejected it.
    """

    exact: bool
    deep: bool
    datasets: int = 0
    files: int = 0
    records: int = 0
    duplicates: int = 0
    gaps: int = 0
    past_watermark: int = 0
    skipped: int = 0
    holes: int = 0
    rejected: int = 0
    earlier_incarnations: int = 0
    pending: list[str] = []
    unknown_files: list[str] = []
    unknown_files_count: int = 0
    orphaned_files: list[str] = []
    orphaned_files_count: int = 0
    sweepable_files: list[str] = []
    sweepable_files_count: int = 0
    shared_positions: list[SharedRange] = []
    shared_positions_count: int = 0
    unreadable: list[str] = []
    partitions: list[AuditRow] = []
    at_least_once: bool = False
    passed: bool = False
    unrecorded_files: int = 0
    altered: list[str] = []
    altered_count: int = 0
    files_without_sum: int = 0
    filtered: int = 0
    superseded_files: int = 0
    ledger_rows: int = 0
    ledger_mismatches: list[str] = []
    ledger_mismatches_count: int = 0
    replaced: int = 0
    expired: int = 0
    counted_branches: list[CountedRow] = []
    skipped_ranges: list[str] = []
    unproven_files: list[str] = []
    unproven_files_count: int = 0
    rejected_records: int = 0

    def add(self, totals: AuditedRecords) -> None:
        """Add the input records of a dataset and incarnation to the counts."""
        for name in AuditedRecords.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(totals, name).count())

    def note(self, kind: _Kind, text: str) -> None:
        """Count a finding of this kind, and list it if it is among the first hundred."""
        setattr(self, f"{kind}_count", getattr(self, f"{kind}_count") + 1)
        listed: list[str] = getattr(self, kind)
        if len(listed) < LISTED:
            listed.append(text)
