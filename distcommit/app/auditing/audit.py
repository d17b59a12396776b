"""The audit: verifies that each offset up to the watermark is published exactly once.

It trusts only the commit logs, the published files and the ledgers of targets. By default it reads only metadata. With
`deep` it reads every record, and targets count the rows that their readers see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from msgspec.structs import replace

from distcommit.app.auditing.audit_result import LISTED, AuditResult
from distcommit.app.auditing.files.content_sum_check import SequenceContent
from distcommit.app.auditing.files.dataset_folder_audit import AuditedFolder, Folders, replaced_otherwise
from distcommit.app.auditing.files.missing_files import LoggedFiles, logged_files, missing_files
from distcommit.app.auditing.files.orphaned_files import orphaned_files
from distcommit.app.auditing.files.published_file_audit import AuditedFile, audited_file
from distcommit.app.auditing.offsets.branch_coverage import Coverage
from distcommit.app.auditing.offsets.shared_positions import SharedPositions, is_other_incarnation
from distcommit.app.auditing.partition_audit import AuditedRecords, CountedRow, counted_rows, rows_of
from distcommit.app.auditing.target_ledgers import BranchLedger, Ledgers, not_as_stored, not_done
from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.counts import count_of
from distcommit.core.support.parallel import run_parallel
from distcommit.core.work_units import SkippedRange, describe_lost_ranges
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.output import REJECTED_FOLDER
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.protocol.paths.temporary_and_probes import is_probe
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import OffsetSets, offsets_of, parsed
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.logs.fencing import newer_runs, older_output
from distcommit.stores.state.job_store import JobStore

__all__ = ["AuditResult", "audit_store"]


class _Dataset:
    """The totals of one dataset. Coverage and holes are kept by incarnation of the source; the key "" stands for the
    incarnation of the watermark. Published offsets are kept by the incarnation that a file or ledger row names.
    """

    def __init__(self, state: DatasetState | None) -> None:
        self.state = state
        self.incarnation = state.reached.incarnation if state and state.reached else ""
        self.coverage, self.holes = defaultdict[str, Coverage](Coverage), defaultdict[str, OffsetSets](OffsetSets)
        self.published, self.footers = dict[str, OffsetSets](), list[Footer]()
        self.repeated = self.records = 0

    def key(self, incarnation: str) -> str:
        """Return the key for the incarnation that a file or ledger row names."""
        return incarnation if is_other_incarnation(incarnation, self.incarnation) else ""

    def lost_ranges(self) -> Iterator[SkippedRange]:
        """Yield the skipped ranges of the state, without offsets that have an outcome in each branch."""
        for skip in self.state.skipped if self.state is not None else ():
            if skip.is_hole or not (isinstance(skip.low, int) and isinstance(skip.high, int)):
                yield skip
                continue
            key = self.key(skip.incarnation)
            present = self.coverage[key].covered() if key in self.coverage else OffsetSets()
            lost_offsets = offsets_of([skip]).difference(present)
            yield from (replace(skip, low=low, high=high) for low, high in lost_offsets.ranges(skip.partition))

    def readings(self) -> Iterator[tuple[str, DatasetState]]:
        """Yield the key of each incarnation that was read, and the dataset's state in the incarnation."""
        if self.state is not None and self.state.reached is not None:
            yield "", self.state
            for reading in self.state.earlier_readings:
                if (key := self.key(reading.watermark.incarnation)) != "":
                    yield key, replace(self.state, watermark=reading.watermark, origin=reading.origin)


def audit_store(
    store: JobStore,
    provenance: Provenance | None,
    *,
    deep: bool,
    at_least_once: bool = False,
    ledgers: Ledgers | None = None,
) -> AuditResult:
    """Compare a job's output, and the ledgers of its targets, with its store. Changes nothing. The caller
    ensures that no run is in progress.

    If `provenance` is None (a source without offsets), offsets are not compared. `at_least_once` lets the audit pass in
    spite of duplicates. `deep` reads every record.
    """
    ledgers = ledgers or Ledgers()
    result = AuditResult(exact=False, deep=deep, at_least_once=at_least_once, unreadable=list(ledgers.unreadable))
    folds: dict[int, Fold] = {}
    for bucket, fold_or_problem in enumerate(
        run_parallel(store.fs.parallel_buckets, partial(_fold, store), range(store.buckets))
    ):
        if isinstance(fold_or_problem, Fold):
            folds[bucket] = fold_or_problem
        else:
            result.unreadable.append(f"bucket {bucket}: {fold_or_problem}")
    states = {folder_of(urn): state for fold in folds.values() for urn, state in fold.datasets.items()}
    audit = _Audit(store, provenance, result, ledgers, deep=deep)
    audit.output()
    audit.read_logs(folds)
    read = partial(audited_file, store.fs, provenance=provenance, deep=deep)
    names = sorted({*states, *audit.dataset_folders(), *ledgers.folders()})
    for folder in Folders(store.fs, store.roots.output, states, read).read_folders(names, deep=deep):
        audit.dataset(folder, states.get(folder.name))
    audit.staging(folds)
    wrong = (
        result.gaps or result.pending or result.unknown_files_count or result.orphaned_files_count or result.unreadable
    )
    wrong = wrong or result.altered_count or result.ledger_mismatches_count
    twice = result.duplicates or result.past_watermark or result.unrecorded_files
    result.exact = not (wrong or twice)
    result.passed = not wrong and (at_least_once or not twice)
    return result


def _fold(store: JobStore, bucket: int) -> Fold | str:
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
        self._logged: dict[str, LoggedFiles] = {}

    def read_logs(self, buckets: Iterable[int]) -> None:
        """Read the names of published files from the logs."""
        for bucket in buckets:
            try:
                logged, damaged = logged_files(self._store, bucket)
            except (DistcommitError, OSError) as error:
                self._result.unreadable.append(f"bucket {bucket}: {error}")
                continue
            self._logged |= logged
            for number in damaged:
                reason = f"segment {number} of the commit log, which can't be read"
                self._result.note("unproven_files", f"bucket {bucket}: files published before {reason}")

    def output(self) -> None:
        try:
            owner = read_owner(self._fs, self._roots.output)
            whose = f"it belongs to job {owner.job!r}" if owner and owner.store_id != self._store.store_id else ""
            for reason in filter(None, (whose, older_output(self._store), newer_runs(self._store))):
                self._result.note(
                    "altered", f"the output as a whole: found {reason}; restore the newest output of the job"
                )
        except DistcommitError as error:
            self._result.unreadable.append(f"job log: {error}")

    def dataset_folders(self) -> list[str]:
        """Return the names of all dataset folders in the output. Other files there are reported as unknown."""
        folder_names: list[str] = []
        for parent in (self._roots.output, f"{self._roots.output}/{REJECTED_FOLDER}"):
            for entry in self._fs.list_folder(parent):
                if not entry.is_folder and not is_probe(entry.name):
                    self._unknown(f"{parent}/{entry.name}", "not in a dataset's folder")
                elif entry.is_folder and entry.name not in (REJECTED_FOLDER, OWNERSHIP_FOLDER):
                    folder_names.append(entry.name)
        return folder_names

    def _merged(self, folder: AuditedFolder) -> dict[str, tuple[int, ...]]:
        """Return the live merged files, with the epochs of the files that were merged into them."""
        return {
            path.removeprefix(f"{self._roots.output}/"): file.footer.replaces
            for path, file in folder.files
            if isinstance(file, AuditedFile) and file.footer.publish == "compact"
        }

    def dataset(self, folder: AuditedFolder, state: DatasetState | None) -> None:
        """Audit one dataset: its files and ledger rows against its state."""
        for path, reason in folder.misplaced:
            self._unknown(path, reason)
        self._result.superseded_files += folder.superseded_count
        checked = _Dataset(state)
        for replaced in folder.replaced:
            checked.coverage[checked.key(replaced.incarnation)].replace(replaced)
        if state and state.status is not DatasetStatus.IDLE:
            self._result.pending.append(f"{state.dataset_urn} ({state.status.value})")
        logged = self._logged.get(state.dataset_urn, LoggedFiles()) if state else LoggedFiles()
        merged = self._merged(folder)
        gone = missing_files(logged, folder.paths, folder.superseded_paths, merged) if folder.is_read else []
        content = None
        if state is not None:
            for epoch in logged.unreadable:
                reason = "whose commit steps have an unknown version"
                self._result.note("unproven_files", f"{state.dataset_urn}: files of epoch {epoch}, {reason}")
            is_missed = any(file.epoch == state.done_epoch for file in gone)
            is_whole = state.done_epoch not in folder.superseded_epochs and not is_missed
            content = SequenceContent(state, is_whole, is_counted=not state.targets)
        self._files(folder, checked, content, logged)
        for ledger in self._ledgers.of(folder.name):
            self._ledger(ledger, checked)
        gaps_before = self._result.gaps
        if state is not None:
            self._as_stored(folder, checked, state)
        for file in gone if self._result.gaps == gaps_before else []:
            self._result.note("altered", f"{file.path}: {file.reason}")
        if content is not None and (reason := content.altered()):
            self._result.note("altered", f"{content.state.dataset_urn}: {reason}")
        self._result.records += checked.records
        self._result.duplicates += checked.repeated

    def _files(
        self, folder: AuditedFolder, checked: _Dataset, content: SequenceContent | None, logged: LoggedFiles
    ) -> None:
        state = checked.state
        pending_epoch = state.sequence.epoch if state and state.sequence else 0
        for path, file in folder.files:
            self._result.files += 1
            if isinstance(file, str):
                self._unknown(path, file)
                continue
            footer, sets = file.footer, file.offsets
            if state is None or footer.dataset_urn != state.dataset_urn or footer.epoch > state.done_epoch:
                if pending_epoch and footer.epoch == pending_epoch:
                    continue
                if self._result.at_least_once and folder_of(footer.dataset_urn) == folder.name:
                    self._result.unrecorded_files += 1
                else:
                    self._unknown(path, f"epoch {footer.epoch}, no sequence of this dataset published it")
                continue
            if logged.is_foreign(self._below(path)):
                self._unknown(path, f"epoch {footer.epoch}, whose files in the commit log do not include it")
                continue
            self._content(path, file, content)
            checked.footers.append(footer)
            if footer.kind == "data":
                checked.records += footer.records
            else:
                self._result.rejected_records += footer.records
            twice = max(0, footer.records - sets.count()) if self._provenance and not footer.makes_several else 0
            checked.repeated += twice
            checked.published.setdefault(footer.incarnation, OffsetSets()).update(sets)
            key = checked.key(footer.incarnation)
            self._result.earlier_incarnations += 1 if key else 0
            checked.holes[key].update(file.holes)
            checked.coverage[key].add(footer, sets)

    def _as_stored(self, folder: AuditedFolder, checked: _Dataset, state: DatasetState) -> None:
        self._result.datasets += 1
        lost_ranges = (f"{state.dataset_urn}, {text}" for text in describe_lost_ranges(checked.lost_ranges()))
        self._result.skipped_ranges += islice(lost_ranges, LISTED - len(self._result.skipped_ranges))
        if reason := replaced_otherwise(folder, state):
            self._result.note("altered", f"{state.dataset_urn}: {reason}")
        self._share(state.dataset_urn, checked.published)
        if self._provenance is None:
            self._count(counted_rows(state.dataset_urn, checked.footers), checked.footers)
            return
        compared = set[str]()
        for key, reading in checked.readings():
            compared.add(key)
            totals = AuditedRecords()
            for branch, coverage in sorted(checked.coverage[key].branches().items()):
                rows = rows_of(reading, branch, coverage, checked.holes[key], totals)
                self._result.partitions += [replace(row, incarnation=key) for row in rows] if key else rows
            self._result.add(totals)
        for key in sorted(checked.coverage.keys() - compared):
            self._result.note("unproven_files", f"{state.dataset_urn}: records of incarnation {key or 'unknown'}")

    def _unknown(self, path: str, reason: str) -> None:
        self._result.note("unknown_files", f"{self._below(path)}: {reason}")

    def _below(self, path: str) -> str:
        return path.removeprefix(self._roots.output + "/")

    def _differs(self, row: LedgerRow, reason: str) -> None:
        self._result.note("ledger_mismatches", f"{_name(row)}: {reason}")

    def _ledger(self, ledger: BranchLedger, checked: _Dataset) -> None:
        row, state = ledger.row, checked.state
        self._result.ledger_rows += 1
        if reason := not_as_stored(row, state):
            self._differs(row, reason)
        if self._deep:
            self._count_visible(ledger)
        try:
            for part in row.covered if state is not None else ():
                offsets = parsed(part.offsets)
                self._result.records += part.rows
                if self._provenance is not None:
                    checked.repeated += part.duplicates if part.makes_several else max(0, part.rows - offsets.count())
                    if part.rows < offsets.count():
                        reason = f"{count_of(part.rows, 'row')} of {count_of(offsets.count(), 'input record')}"
                        self._result.note("altered", f"{_name(row)}: {reason}")
                checked.published.setdefault(part.incarnation, OffsetSets()).update(offsets)
                key = checked.key(part.incarnation)
                self._result.earlier_incarnations += 1 if key else 0
                if not key and state and state.sequence and row.epoch == state.sequence.epoch:
                    offsets = offsets.difference(not_done(state.sequence))
                checked.holes[key].update(parsed(part.holes))
                checked.coverage[key].add_rows(row.branch, part, offsets)
        except Exception as error:  # noqa: BLE001 - whatever a target raises
            self._differs(row, f"it can't be read: {error}")

    def _count_visible(self, ledger: BranchLedger) -> None:
        """Compare the rows that readers of the target see with the ledger."""
        try:
            if reason := ledger.miscounted():
                self._result.note("altered", f"{_name(ledger.row)}: {reason}")
        except Exception as error:  # noqa: BLE001 - whatever a target raises
            self._differs(ledger.row, f"its rows at the target can't be counted: {error}")

    def _share(self, urn: str, published: dict[str, OffsetSets]) -> None:
        """Report positions that this dataset and datasets audited before have both published."""
        if self._shared is None:
            return
        count, ranges = self._shared.add(urn, published)
        self._result.duplicates += count
        self._result.shared_positions_count += count
        listed = self._result.shared_positions
        listed += islice(ranges, LISTED - len(listed))

    def _content(self, path: str, file: AuditedFile, content: SequenceContent | None) -> None:
        if content is not None:
            content.add(file.footer)
        if not file.footer.content_sum:
            self._result.files_without_sum += 1
        if file.altered:
            self._result.note("altered", f"{self._below(path)}: {file.altered}")

    def _count(self, rows: list[CountedRow], footers: Iterable[Footer]) -> None:
        self._result.counted_branches += rows
        for footer in footers:
            self._result.rejected += footer.records if footer.kind == "rejected" else 0
            self._result.filtered += sum(footer.filtered_by.values())

    def staging(self, folds: dict[int, Fold]) -> None:
        """Report files in staging that no open sequence needs."""
        try:
            for orphan in orphaned_files(self._store, folds):
                if orphan.reason:
                    self._result.note("orphaned_files", f"{orphan.path}: {orphan.reason}")
                else:
                    self._result.note("sweepable_files", orphan.path)
        except DistcommitError as error:
            if (text := f"job log: {error}") not in self._result.unreadable:
                self._result.unreadable.append(text)
