"""The findings of an audit."""

from __future__ import annotations

from typing import Literal

import msgspec

from distcommit.app.auditing.audit_rows import AuditedRecords, AuditRow, CountedRow
from distcommit.app.auditing.shared_positions import SharedRange
from distcommit.core.support.notebook import Shown

LISTED = 100
_Kind = Literal["unknown_files", "altered", "not_as_stored", "not_compared", "staged_left", "to_be_swept"]


class AuditResult(Shown, msgspec.Struct):
    """The findings; `exact` if each offset below each watermark is published exactly once and nothing else is there.

    `passed`: what was found is what the job's delivery promises. That is `exact`; with `at_least_once` it is that
    nothing is missing; duplicates, offsets past a watermark and `unrecorded_files`, which no DONE names, only count.
    Lists name the first hundred of a kind; counts are whole. `pending` datasets are not finished: replay comes first,
    and what their pending sequences have published so far is not counted. `skipped` positions were given up: data
    loss, of which `skipped_ranges` names dataset, range and cause.
    `holes` had no record in the source; `filtered` ones nothing was to be written of, on purpose. An input record that
    several branches lack, filter or reject counts once; `partitions` has each branch. `records` are those that were
    published, of which several may have come of one; rejected ones are not among them,
    but `rejected_records`, in error files, each as often as a branch has rejected it.
    `earlier_incarnations` counts files of a source that was made again under its name since (a Kafka topic of another
    id): they are compared with how far that one was read.
    `counted`: of sources without offsets the `rejected` and `filtered` ones, branch by branch, as files say them.
    `published_by_two`: source positions that two datasets have published, which are among the duplicates.
    `to_be_swept`: what attempts of earlier runs have left in task output, such as those of a dataset that failed; the
    next run takes it away, and it is nothing wrong. `staged_left` is what no run would take away.
    `altered`: files whose records, as `deep` read them, are not those that were written, and datasets whose files are
    not those that were sealed last; of sources without offsets published files that are gone, too. `unsummed_files` are
    older than the sums that tell: of their records, offsets alone are checked. `retired`: files that others
    have taken the place of and that no run has deleted yet, and the tombstones that say so, but for the newest
    replacement, which stays; they count nowhere else. `replaced` input records were published, or turned away, and a
    publisher that replaces has put others in their place; `retained` ones `distcommit dataset expire` has taken, as
    they were too old.
    `ledger_rows`: what targets say of what was committed to them, a row for each dataset and branch; `not_as_stored`
    are those that differ from what the store knows: of datasets unknown to it, or of epochs that no DONE names.
    `not_compared`: what nothing that is stored tells whether it is whole, so that `exact` says nothing of it.
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
    staged_left: list[str] = []
    staged_left_count: int = 0
    to_be_swept: list[str] = []
    to_be_swept_count: int = 0
    published_by_two: list[SharedRange] = []
    published_by_two_count: int = 0
    unreadable: list[str] = []
    partitions: list[AuditRow] = []
    at_least_once: bool = False
    passed: bool = False
    unrecorded_files: int = 0
    altered: list[str] = []
    altered_count: int = 0
    unsummed_files: int = 0
    filtered: int = 0
    retired: int = 0
    ledger_rows: int = 0
    not_as_stored: list[str] = []
    not_as_stored_count: int = 0
    replaced: int = 0
    retained: int = 0
    counted: list[CountedRow] = []
    skipped_ranges: list[str] = []
    not_compared: list[str] = []
    not_compared_count: int = 0
    rejected_records: int = 0

    def add(self, totals: AuditedRecords) -> None:
        """Count the input records of a dataset and incarnation."""
        for name in AuditedRecords.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(totals, name).count())

    def note(self, kind: _Kind, what: str) -> None:
        """Count a finding of that kind, and list it if it is among the first hundred."""
        setattr(self, f"{kind}_count", getattr(self, f"{kind}_count") + 1)
        listed: list[str] = getattr(self, kind)
        if len(listed) < LISTED:
            listed.append(what)
