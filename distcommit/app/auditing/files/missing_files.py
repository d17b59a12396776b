"""Detects missing published files by the names in commit logs.

If the source has offsets, a missing file also shows as a gap. If it has none, only the bucket log names the file, in
the sequences since the log's second newest checkpoint. Files that a tombstone names may be missing. If an operator set
the watermark back or rebuilt the dataset, all older files may be missing too.
"""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from distcommit.core.errors import CorruptError, DistcommitError, UnknownVersionError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import (
    Checkpoint,
    Done,
    Gate,
    Intent,
    OperatorAction,
    OperatorDecision,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.output import (
    REJECTED_FOLDER,
    attempt_named,
    is_compaction_tombstone,
    is_published_name,
    is_tombstone,
    published_epoch,
)
from distcommit.protocol.record_effects import apply
from distcommit.protocol.record_validity import rejection_reason
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
from distcommit.stores.state.job_store import JobStore


@dataclass(slots=True)
class LoggedFiles:
    """The files and tombstones that a log names for a dataset. Paths are relative to the output.

    Attributes:
        files: epoch of each published file, by path.
        stones: epoch of each published tombstone, by path.
        accepted: paths of files in sequences that an operator accepted; they may be missing.
        epochs: epochs whose files are all named.
        unreadable: epochs with commit steps of an unknown version, whose files are not named.
    """

    files: dict[str, int] = field(default_factory=dict)
    stones: dict[str, int] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    epochs: set[int] = field(default_factory=set)
    unreadable: list[int] = field(default_factory=list)

    def is_foreign(self, path: str) -> bool:
        """Return whether the file's name contains a known epoch and an attempt that the log does not have in this
        epoch.
        """
        name = path.rpartition("/")[2]
        is_of_known = is_published_name(name) and published_epoch(name) in self.epochs
        return is_of_known and attempt_named(path) not in {
            attempt_named(logged_path) for logged_path in (*self.files, *self.accepted)
        }


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A missing published file.

    Attributes:
        path: path relative to the output.
        epoch: epoch that published the file.
    """

    path: str
    epoch: int

    @property
    def reason(self) -> str:
        return (
            f"the file is missing: the commit log records that epoch {self.epoch} published it, and no record deletes"
            " it; restore it from a backup. To delete files on purpose, use `distcommit dataset expire`"
        )


def missing_files(
    logged: LoggedFiles,
    existing_paths: Collection[str],
    superseded_paths: Collection[str],
    merged: Mapping[str, Collection[int]],
) -> list[MissingFile]:
    """Return the missing files of a dataset.

    Args:
        existing_paths: paths of existing files and tombstones, relative to the output.
        superseded_paths: paths of superseded files, relative to the output, deleted or not.
        merged: epochs of the files that were merged into each live merged file, by its path relative to the output.
    """
    # A replacement goes with another one, which names it, and not what it had named. A tombstone of error files that
    # were fed again goes with these.
    named = {path: published_epoch(path.rpartition("/")[2]) for path in superseded_paths if is_tombstone(path)}
    known_from = max((epoch for path, epoch in named.items() if path not in existing_paths), default=0)
    deleted_stones = {path: epoch for path, epoch in logged.stones.items() if path not in existing_paths}
    reprocessed = (epoch for path, epoch in deleted_stones.items() if not is_compaction_tombstone(path))
    errors_from = max([known_from, *reprocessed])
    compacted = _CompactedFiles.of(logged, deleted_stones, superseded_paths, merged)
    moved = Counter(map(posixpath.basename, {*existing_paths, *superseded_paths}.difference(logged.files)))
    gone: list[MissingFile] = []
    for path, epoch in sorted(logged.files.items()):
        is_there = path in existing_paths or path in superseded_paths
        if is_there or epoch < (errors_from if path.startswith(f"{REJECTED_FOLDER}/") else known_from):
            continue
        if compacted.may_include(path, epoch):
            continue
        name = posixpath.basename(path)
        moved[name] -= 1
        if moved[name] < 0:
            gone.append(MissingFile(path, epoch))
    return gone


@dataclass(frozen=True, slots=True)
class _CompactedFiles:
    """The files that compactions deleted. Merged and compacted files have the same folder.

    Attributes:
        epochs: epochs of the files that live merged files replaced, by folder.
        before: epoch of the newest merged file that is no longer live, by folder. It may have replaced any older file,
            because its footer may be gone.
    """

    epochs: Mapping[str, set[int]]
    before: Mapping[str, int]

    @classmethod
    def of(
        cls,
        logged: LoggedFiles,
        deleted_stones: Mapping[str, int],
        superseded_paths: Collection[str],
        merged: Mapping[str, Collection[int]],
    ) -> Self:
        epochs, before = defaultdict[str, set[int]](set), defaultdict[str, int](int)
        for path, replaced in merged.items():
            epochs[posixpath.dirname(path)].update(replaced)
        attempts = {
            posixpath.basename(path).removeprefix("_").partition(".")[0]: epoch
            for path, epoch in deleted_stones.items()
            if is_compaction_tombstone(path)
        }
        for path in {*logged.files, *logged.accepted, *superseded_paths}.difference(merged):
            folder, epoch = posixpath.dirname(path), attempts.get(attempt_named(path), 0)
            if epoch not in epochs[folder]:  # else it was merged again, into a live file
                before[folder] = max(before[folder], epoch)
        return cls(epochs, before)

    def may_include(self, path: str, epoch: int) -> bool:
        folder = posixpath.dirname(path)
        return epoch in self.epochs.get(folder, ()) or epoch < self.before.get(folder, 0)


def logged_files(store: JobStore, bucket: int) -> tuple[dict[str, LoggedFiles], list[int]]:
    """Return the files that the log of a bucket names, by dataset, and the numbers of damaged segments. Files of
    sequences before a damaged segment, and between it and the next checkpoint, are not named.

    Raises:
        DistcommitError, OSError: if the log can't be read.
    """
    context = StepContext(store.fs, store.roots.staging, store.roots.output, store_id=store.store_id)
    fold: Fold | None = None
    files_by_dataset: dict[str, LoggedFiles] = {}
    damaged: list[int] = []
    for number, segment in store.bucket_log(bucket).segments():
        record = None if isinstance(segment, DistcommitError) else segment.record
        if record is None:
            damaged.append(number)
        if record is None or (fold is None and not isinstance(record, Checkpoint)):
            fold, files_by_dataset = None, {}  # its content is unknown until the next checkpoint
            continue
        fold = fold or Fold()
        if not rejection_reason(record, fold):
            for urn in _read_again(record, fold):
                files_by_dataset.pop(urn, None)
            for sequence, is_whole in _done(record, fold):
                _add(
                    files_by_dataset.setdefault(sequence.dataset_urn, LoggedFiles()),
                    sequence,
                    context,
                    is_whole=is_whole,
                )
        apply(number, record, fold)
    return files_by_dataset, damaged


def _done(record: Record, fold: Fold) -> Iterator[tuple[SealedSequence, bool]]:
    """Yield the sequences that a record closes as published. The flag is False for an accepted sequence, which may lack
    files.
    """
    match record:
        case Intent(gate=Gate.PASSED):
            yield from ((sequence, True) for sequence in record.sequences)
        case Done():
            opened = (fold.state_of(name.dataset_urn).sequence for name in record.sequences)
            yield from ((sequence, True) for sequence in opened if sequence is not None)
        case OperatorDecision(action=OperatorAction.ACCEPT | OperatorAction.GIVEN_UP):
            accepted = fold.state_of(record.sequence.dataset_urn).sequence
            yield from [(accepted, False)] if accepted is not None else []


def _read_again(record: Record, fold: Fold) -> Iterator[str]:
    """Yield the datasets that a record rebuilds, or whose watermark it deletes or sets back."""
    match record:
        case SetWatermark():
            yield from [record.dataset_urn] if _goes_back(fold, record.dataset_urn, record.watermark) else []
        case SetWatermarks():
            yield from (urn for urn, watermark in record.watermarks.items() if _goes_back(fold, urn, watermark))
        case Rebuilt():
            yield from (state.dataset_urn for state in record.datasets)


def _goes_back(fold: Fold, urn: str, watermark: Watermark | None) -> bool:
    before = fold.state_of(urn).watermark
    return watermark is None or (before is not None and not watermark.covers(before))


def _add(published: LoggedFiles, sequence: SealedSequence, context: StepContext, *, is_whole: bool) -> None:
    renames = [batch for batch in sequence.steps if batch.type_name == FsRenameCommitStep.type_name]
    try:
        steps = list(load_steps(renames, context))
    except (UnknownVersionError, CorruptError):  # of a newer program: which files it names is not known
        published.unreadable.append(sequence.epoch)
        return
    if sequence.steps:  # at-least-once publishes before it seals, and names no files
        published.epochs.add(sequence.epoch)
    for step in steps:
        if isinstance(step, FsRenameCommitStep):
            path = step.file.final_path
            if is_tombstone(path):
                published.stones[path] = sequence.epoch
            elif is_whole:
                published.files[path] = sequence.epoch
            else:
                published.accepted.add(path)
