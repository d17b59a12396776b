"""The audit: is every offset from the first to the watermark published exactly once?

It trusts nothing but the logs' folds, the published files and the ledgers of targets: what these say of records by
default; with `deep` every record of a file is read, and targets count what their readers see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice

import msgspec

from distcommit.app.output.audit_rows import AuditRow, CountedRow, counted_rows, rows_of
from distcommit.app.output.audited_file import AuditedFile, audited_file
from distcommit.app.output.audited_folder import AuditedFolder, Folders
from distcommit.app.output.contents import SequenceContent
from distcommit.app.output.coverage import BranchCoverage, Coverage
from distcommit.app.output.gone_files import gone_files
from distcommit.app.output.ledgers import BranchLedger, Ledgers, not_as_stored, not_done
from distcommit.app.output.leftovers import leftovers
from distcommit.app.output.shared_positions import SharedPositions, SharedRange, is_other
from distcommit.model.errors import DistcommitError
from distcommit.model.ledger import LedgerRow
from distcommit.model.log_records import DatasetState, DatasetStatus
from distcommit.model.notebook import Shown
from distcommit.model.parallel import in_flight
from distcommit.model.provenance import Provenance
from distcommit.model.urn import folder_of
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths.output import REJECTED_FOLDER
from distcommit.protocol.paths.parts import CLAIM_FOLDER
from distcommit.protocol.paths.temporary import is_probe
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offsets import OffsetSets, parsed
from distcommit.stores.job_store import JobStore

_LISTED = 100


class AuditResult(Shown, msgspec.Struct):
    """The findings; `exact` if each offset below each watermark is published exactly once and nothing else is there.

    `passed`: what was found is what the job's delivery promises. That is `exact`; with `at_least_once` it is that
    nothing is missing; duplicates, offsets past a watermark and `unrecorded_files`, which no DONE names, only count.
    Lists name the first hundred of a kind; counts are whole. `pending` datasets are not finished: replay comes first,
    and what their pending sequences have published so far is not counted. `skipped` positions were given up: data loss.
    `holes` had no record in the source; `filtered` ones nothing was to be written of, on purpose; these and `rejected`
    ones count in each branch. `records` are those that were written, of which several may have come of one.
    `earlier_incarnations` counts files of a source that was made again under its name since (a Kafka topic of another
    id): their offsets are not those that the watermark counts in.
    `counted`: of sources without offsets the `rejected` and `filtered` ones, branch by branch, as files say them.
    `published_by_two`: source positions that two datasets have published, which are among the duplicates.
    `to_be_swept`: what attempts of earlier runs have left in task output, such as those of a dataset that failed; the
    next run takes it away, and it is nothing wrong. `staged_left` is what no run would take away.
    `altered`: files whose records, as `deep` read them, are not those that were written, and datasets whose files are
    not those that were sealed last; of sources without offsets published files that are gone, too. `unsummed_files` are
    older than the sums that tell: of their records, offsets alone are checked. `retired`: files that others
    have taken the place of and that no run has deleted yet, and the tombstones that say so, but for the newest
    replacement, which stays; they count nowhere else. `replaced` input records were published, or turned away, and a
    publisher that replaces has put others in their place; `retained` ones `distcommit retain` has taken, as they were
    too old.
    `ledger_rows`: what targets say of what was committed to them, a row for each dataset and branch; `not_as_stored`
    are those that differ from what the store knows: of datasets unknown to it, or of epochs that no DONE names.
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


@dataclass(frozen=True, slots=True)
class _Dataset:
    """What one dataset adds up to: `published` by incarnation, and the rest in the one that its watermark counts in."""

    incarnation: str
    coverage: Coverage
    holes: OffsetSets
    published: dict[str, OffsetSets]


def audit_store(
    store: JobStore,
    provenance: Provenance | None,
    *,
    deep: bool,
    at_least_once: bool = False,
    ledgers: Ledgers | None = None,
) -> AuditResult:
    """Audits a job's output, and the ledgers of its targets, against its store. Reads only; give it a store that no run
    is working on."""
    ledgers = ledgers or Ledgers()
    result = AuditResult(exact=False, deep=deep, at_least_once=at_least_once, unreadable=list(ledgers.unreadable))
    folds: dict[int, Fold] = {}
    for bucket, found in enumerate(in_flight(store.fs.parallel_buckets, partial(_fold, store), range(store.buckets))):
        if isinstance(found, Fold):
            folds[bucket] = found
        else:
            result.unreadable.append(f"bucket {bucket}: {found}")
    known = {folder_of(urn): state for fold in folds.values() for urn, state in fold.datasets.items()}
    audit = _Audit(store, provenance, result, ledgers, deep=deep)
    if provenance is None:
        audit.gone(folds)
    read = partial(audited_file, store.fs, provenance=provenance, deep=deep)
    names = sorted({*known, *audit.dataset_folders(), *ledgers.folders()})
    for folder in Folders(store.fs, store.roots.output, known, read).each(names, deep=deep):
        audit.dataset(folder, known.get(folder.name))
    audit.staging(folds)
    wrong = result.gaps or result.pending or result.unknown_files_count or result.staged_left_count or result.unreadable
    wrong = wrong or result.altered_count or result.not_as_stored_count
    twice = result.duplicates or result.past_watermark or result.unrecorded_files
    result.exact = not (wrong or twice)
    result.passed = not wrong and (at_least_once or not twice)
    return result


def _fold(store: JobStore, bucket: int) -> Fold | str:
    """What a bucket's log says, or why it can't be read."""
    try:
        return store.bucket_log(bucket).refresh()
    except (DistcommitError, OSError) as error:
        return str(error)


def _name(row: LedgerRow) -> str:
    return f"{row.dataset_urn}, branch {row.branch}"


class _Audit:
    def __init__(
        self, store: JobStore, provenance: Provenance | None, result: AuditResult, ledgers: Ledgers, *, deep: bool
    ) -> None:
        self._fs, self._roots, self._store, self._ledgers = store.fs, store.roots, store, ledgers
        self._provenance, self._result, self._deep = provenance, result, deep
        self._shared = SharedPositions(provenance) if provenance is not None else None
        self._missed: set[str] = set()

    def gone(self, buckets: Iterable[int]) -> None:
        """Tells the published files that are not there, of a source of which no offset does."""
        for bucket in buckets:
            try:
                for state, files in gone_files(self._store, bucket):
                    for file in files:
                        self._altered(file.path, file.why)
                    if any(file.epoch == state.done_epoch for file in files):
                        self._missed.add(state.dataset_urn)
            except (DistcommitError, OSError) as error:
                self._result.unreadable.append(f"bucket {bucket}: {error}")

    def dataset_folders(self) -> list[str]:
        """Names of the folders of all datasets in the output; files beside them are noted as unknown."""
        found: list[str] = []
        for parent in (self._roots.output, f"{self._roots.output}/{REJECTED_FOLDER}"):
            for entry in self._fs.list_folder(parent):
                if not entry.is_folder and not is_probe(entry.name):
                    self._unknown(f"{parent}/{entry.name}", "not in a dataset's folder")
                elif entry.is_folder and entry.name not in (REJECTED_FOLDER, CLAIM_FOLDER):
                    found.append(entry.name)
        return found

    def dataset(self, folder: AuditedFolder, state: DatasetState | None) -> None:
        """Adds up one dataset's files and rows and holds them against its state."""
        for path, why in folder.wrong:
            self._unknown(path, why)
        self._result.retired += folder.retired
        coverage, holes = Coverage(), OffsetSets()
        incarnation = state.watermark.incarnation if state and state.watermark else ""
        for each in folder.replaced:
            if not is_other(each.incarnation, incarnation):
                coverage.replace(each)
        published: dict[str, OffsetSets] = {}
        repeated = records = 0
        pending_epoch = state.sequence.epoch if state and state.sequence else 0
        is_whole = state is not None and state.done_epoch not in folder.retired_epochs
        content, footers = self._sequence(state, is_whole) if state else None, list[Footer]()
        if state and state.status is not DatasetStatus.IDLE:
            self._result.pending.append(f"{state.dataset_urn} ({state.status.value})")
        for path, found in folder.files:
            self._result.files += 1
            if isinstance(found, str):
                self._unknown(path, found)
                continue
            footer, sets = found.footer, found.offsets
            if state is None or footer.dataset_urn != state.dataset_urn or footer.epoch > state.done_epoch:
                if pending_epoch and footer.epoch == pending_epoch:
                    continue
                if self._result.at_least_once and folder_of(footer.dataset_urn) == folder.name:
                    self._result.unrecorded_files += 1
                else:
                    self._unknown(path, f"epoch {footer.epoch}, no sequence of this dataset published it")
                continue
            self._content(path, found, content)
            footers.append(footer)
            records += footer.records
            repeated += max(0, footer.records - sets.count()) if self._provenance and not footer.makes_several else 0
            published.setdefault(footer.incarnation, OffsetSets()).update(sets)
            if is_other(footer.incarnation, incarnation):
                self._result.earlier_incarnations += 1
                continue
            holes.update(found.holes)
            coverage.add(footer, sets)
        for ledger in self._ledgers.of(folder.name):
            repeated += self._ledger(ledger, state, _Dataset(incarnation, coverage, holes, published))
        self._result.records += records
        if state is not None:
            self._result.datasets += 1
            if self._provenance is not None and state.watermark is not None:
                for branch, found_there in sorted(coverage.branches().items()):
                    self._rows(state, branch, found_there, holes)
            self._share(state.dataset_urn, published)
            if self._provenance is None:
                self._count(counted_rows(state.dataset_urn, footers))
        if content is not None and (why := content.altered()):
            self._altered(content.state.dataset_urn, why)
        self._result.duplicates += repeated

    def _ledger(self, ledger: BranchLedger, state: DatasetState | None, found: _Dataset) -> int:
        """Adds up a dataset's rows in one branch; how many of them are there twice, as the ledger itself tells."""
        row, repeated = ledger.row, 0
        self._result.ledger_rows += 1
        if why := not_as_stored(row, state):
            self._differs(row, why)
        if self._deep:
            self._count_visible(ledger)
        try:
            for part in row.covered if state is not None else ():
                offsets = parsed(part.offsets)
                self._result.records += part.rows
                if self._provenance is not None:
                    repeated += part.twice if part.makes_several else max(0, part.rows - offsets.count())
                    if part.rows < offsets.count():
                        self._altered(_name(row), f"{part.rows} rows of {offsets.count()} input records")
                found.published.setdefault(part.incarnation, OffsetSets()).update(offsets)
                if is_other(part.incarnation, found.incarnation):
                    self._result.earlier_incarnations += 1
                    continue
                if state and state.sequence and row.epoch == state.sequence.epoch:
                    offsets = offsets.difference(not_done(state.sequence))
                found.holes.update(parsed(part.holes))
                found.coverage.add_rows(row.branch, part, offsets)
        except Exception as error:  # noqa: BLE001 - whatever a target raises
            self._differs(row, f"it can't be read: {error}")
        return repeated

    def _count_visible(self, ledger: BranchLedger) -> None:
        """Has the target count what its readers see. A table that can't be read says nothing of the ledger's row."""
        try:
            if why := ledger.miscounted():
                self._altered(_name(ledger.row), why)
        except Exception as error:  # noqa: BLE001 - whatever a target raises
            self._differs(ledger.row, f"its rows at the target can't be counted: {error}")

    def _differs(self, row: LedgerRow, why: str) -> None:
        self._result.not_as_stored_count += 1
        if len(self._result.not_as_stored) < _LISTED:
            self._result.not_as_stored.append(f"{_name(row)}: {why}")

    def _share(self, urn: str, published: dict[str, OffsetSets]) -> None:
        """Adds up what datasets before this one have published too."""
        if self._shared is None:
            return
        count, ranges = self._shared.add(urn, published)
        self._result.duplicates += count
        self._result.published_by_two_count += count
        listed = self._result.published_by_two
        listed += islice(ranges, _LISTED - len(listed))

    def _content(self, path: str, found: AuditedFile, content: SequenceContent | None) -> None:
        """Notes what a file that counts says of its records."""
        if content is not None:
            content.add(found.footer)
        if not found.footer.content_sum:
            self._result.unsummed_files += 1
        if found.altered:
            self._altered(path.removeprefix(self._roots.output + "/"), found.altered)

    def _sequence(self, state: DatasetState, is_whole: bool) -> SequenceContent:
        is_counted = self._provenance is None and not state.targets
        return SequenceContent(state, is_whole and state.dataset_urn not in self._missed, is_counted)

    def _altered(self, what: str, why: str) -> None:
        self._result.altered_count += 1
        if len(self._result.altered) < _LISTED:
            self._result.altered.append(f"{what}: {why}")

    def _rows(self, state: DatasetState, branch: str, found: BranchCoverage, holes: OffsetSets) -> None:
        rows, past_watermark = rows_of(state, branch, found, holes)
        self._result.partitions += rows
        self._result.past_watermark += past_watermark
        for row in rows:
            self._result.duplicates += row.duplicates
            self._result.gaps += row.gaps
            self._result.rejected += row.rejected
            self._result.skipped += row.skipped
            self._result.holes += row.holes
            self._result.filtered += row.filtered
            self._result.replaced += row.replaced
            self._result.retained += row.retained

    def _count(self, rows: list[CountedRow]) -> None:
        self._result.counted += rows
        self._result.rejected += sum(row.rejected for row in rows)
        self._result.filtered += sum(row.filtered for row in rows)

    def _unknown(self, path: str, why: str) -> None:
        self._result.unknown_files_count += 1
        if len(self._result.unknown_files) < _LISTED:
            self._result.unknown_files.append(f"{path.removeprefix(self._roots.output + '/')}: {why}")

    def staging(self, folds: dict[int, Fold]) -> None:
        """Lists what is in task output and belongs to no sequence that still needs it."""
        result = self._result
        try:
            for left in leftovers(self._store, folds):
                if left.why_not:
                    result.staged_left_count += 1
                    if len(result.staged_left) < _LISTED:
                        result.staged_left.append(f"{left.path}: {left.why_not}")
                else:
                    result.to_be_swept_count += 1
                    if len(result.to_be_swept) < _LISTED:
                        result.to_be_swept.append(left.path)
        except DistcommitError as error:
            result.unreadable.append(f"job log: {error}")
