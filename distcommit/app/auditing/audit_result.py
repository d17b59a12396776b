"""The findings of an audit."""

from __future__ import annotations

from typing import Literal

import msgspec

from distcommit.app.auditing.audit_rows import AuditedRecords, AuditRow, CountedRow
from distcommit.app.auditing.shared_positions import SharedRange
from distcommit.core.support.notebook import NotebookTable

LISTED = 100
_Kind = Literal["unknown_files", "altered", "ledger_mismatches", "unproven_files", "orphaned_files", "sweepable_files"]


class AuditResult(NotebookTable, msgspec.Struct):
    """The findings of an audit. Lists have the first hundred of a kind; counts include all.

    A record that several branches lack, filter or reject counts once; `partitions` has each branch.
    """

    exact: bool
    """Whether each offset below each watermark is published exactly once, and nothing else is there."""
    deep: bool
    datasets: int = 0
    files: int = 0
    records: int = 0
    """Published records; several may come from one input record."""
    duplicates: int = 0
    gaps: int = 0
    past_watermark: int = 0
    skipped: int = 0
    """Positions that were given up: data loss."""
    holes: int = 0
    """Positions without a record in the source."""
    rejected: int = 0
    """Input records that were rejected."""
    earlier_incarnations: int = 0
    """Files of a source that was recreated since (a Kafka topic of another id). They are compared with how far that one
    was read."""
    pending: list[str] = []
    """Datasets that are not finished. Published files of their pending sequences are not counted."""
    unknown_files: list[str] = []
    unknown_files_count: int = 0
    orphaned_files: list[str] = []
    """Items in task output that no run would delete."""
    orphaned_files_count: int = 0
    sweepable_files: list[str] = []
    """Task output of earlier runs' attempts, which the next run deletes. Not a fault."""
    sweepable_files_count: int = 0
    shared_positions: list[SharedRange] = []
    """Source positions that two datasets have published; also among the duplicates."""
    shared_positions_count: int = 0
    unreadable: list[str] = []
    partitions: list[AuditRow] = []
    at_least_once: bool = False
    passed: bool = False
    """Whether the findings are what the job's delivery promises: `exact`; with `at_least_once`, that nothing is
    missing."""
    unrecorded_files: int = 0
    """Of at-least-once: files that no DONE names."""
    altered: list[str] = []
    """Files whose records, as `deep` read them, are not those that were written, and datasets whose files are not those
    that were sealed last. Of sources without offsets also published files that are gone."""
    altered_count: int = 0
    files_without_sum: int = 0
    """Files from before content sums: only the offsets of their records are checked."""
    filtered: int = 0
    """Input records that were filtered on purpose."""
    superseded_files: int = 0
    """Superseded files that no run has deleted yet, and their tombstones, but for the newest replacement. They count
    nowhere else."""
    ledger_rows: int = 0
    """Rows of the targets' ledgers, one for each dataset and branch."""
    ledger_mismatches: list[str] = []
    """Ledger rows that differ from the store: of unknown datasets, or of epochs that no DONE names."""
    ledger_mismatches_count: int = 0
    replaced: int = 0
    """Input records whose output was replaced by a publisher that replaces."""
    expired: int = 0
    """Input records whose files `distcommit dataset expire` has deleted."""
    counted_branches: list[CountedRow] = []
    """Of sources without offsets: rejected and filtered records by branch, by their files."""
    skipped_ranges: list[str] = []
    """Dataset, range and cause of `skipped`."""
    unproven_files: list[str] = []
    """Files whose completeness no stored state can prove; `exact` does not include them."""
    unproven_files_count: int = 0
    rejected_records: int = 0
    """Records in error files, once for each branch that rejected them."""

    def add(self, totals: AuditedRecords) -> None:
        """Count the input records of a dataset and incarnation."""
        for name in AuditedRecords.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(totals, name).count())

    def note(self, kind: _Kind, text: str) -> None:
        """Count a finding of that kind, and list it if it is among the first hundred."""
        setattr(self, f"{kind}_count", getattr(self, f"{kind}_count") + 1)
        listed: list[str] = getattr(self, kind)
        if len(listed) < LISTED:
            listed.append(text)
