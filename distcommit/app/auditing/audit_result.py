"""The findings of an audit."""

from __future__ import annotations

from typing import Literal

import msgspec

from distcommit.app.auditing.offsets.shared_positions import SharedRange
from distcommit.app.auditing.partition_audit import AuditedRecords, AuditRow, CountedRow
from distcommit.core.support.notebook import NotebookTable

LISTED = 100
_Kind = Literal["unknown_files", "altered", "ledger_mismatches", "unproven_files", "orphaned_files", "sweepable_files"]


class AuditResult(NotebookTable, msgspec.Struct):
    """The findings of an audit. Lists have the first hundred findings of a kind; counts include all.

    A record that several branches lack, filter or reject counts once; `partitions` has the numbers of each branch.
    """

    exact: bool
    """Whether each offset below each watermark is published exactly once, and no unknown file exists."""
    deep: bool
    datasets: int = 0
    files: int = 0
    records: int = 0
    """Published records. Several may come from one input record."""
    duplicates: int = 0
    gaps: int = 0
    past_watermark: int = 0
    skipped: int = 0
    """Positions that were skipped because their records are lost."""
    holes: int = 0
    """Positions at which the source has no record."""
    rejected: int = 0
    earlier_incarnations: int = 0
    """Files from a source that was recreated later (an older Kafka topic id). They are compared with the last position
    in that older source.
    """
    pending: list[str] = []
    """Datasets with a sealed sequence that is not closed. Files of the sequence are not counted."""
    unknown_files: list[str] = []
    unknown_files_count: int = 0
    orphaned_files: list[str] = []
    """Files and folders in staging that no run deletes."""
    orphaned_files_count: int = 0
    sweepable_files: list[str] = []
    """Files of earlier attempts in staging, which the next run deletes. This is not a fault."""
    sweepable_files_count: int = 0
    shared_positions: list[SharedRange] = []
    """Source positions that two datasets have published. They are also counted as duplicates."""
    shared_positions_count: int = 0
    unreadable: list[str] = []
    partitions: list[AuditRow] = []
    at_least_once: bool = False
    passed: bool = False
    """Whether the job's delivery guarantee holds: `exact`, or with `at_least_once` that no record is missing."""
    unrecorded_files: int = 0
    """With at-least-once delivery: files that no DONE record names."""
    altered: list[str] = []
    """Altered output: files whose records, read with `deep`, differ from the written ones; datasets whose files differ
    from the last sealed sequence; and for sources without offsets, missing published files.
    """
    altered_count: int = 0
    files_without_sum: int = 0
    """Files without a content sum. Only the offsets of their records are verified."""
    filtered: int = 0
    superseded_files: int = 0
    """Superseded files and tombstones that are not deleted yet, except the tombstone of the newest replacement. No
    other count includes them.
    """
    ledger_rows: int = 0
    """Rows in the targets' ledgers, one for each dataset and branch."""
    ledger_mismatches: list[str] = []
    """Ledger rows that the store does not know: of unknown datasets, or of epochs without a DONE record."""
    ledger_mismatches_count: int = 0
    replaced: int = 0
    """Input records whose output a replacing publisher has replaced."""
    expired: int = 0
    """Input records in files that `distcommit dataset expire` has deleted."""
    counted_branches: list[CountedRow] = []
    """For sources without offsets: rejected and filtered records of each branch, counted from its files."""
    skipped_ranges: list[str] = []
    """The ranges of `skipped`: dataset, range and cause."""
    unproven_files: list[str] = []
    """Files of which no stored state proves that they are complete. `exact` does not consider them."""
    unproven_files_count: int = 0
    rejected_records: int = 0
    """Records in error files. A record counts once for each branch that rejected it."""

    def add(self, totals: AuditedRecords) -> None:
        """Add the input records of a dataset and incarnation to the counts."""
        for name in AuditedRecords.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(totals, name).count())

    def note(self, kind: _Kind, text: str) -> None:
        """Count a finding of that kind. The first hundred are also listed."""
        setattr(self, f"{kind}_count", getattr(self, f"{kind}_count") + 1)
        listed: list[str] = getattr(self, kind)
        if len(listed) < LISTED:
            listed.append(text)
