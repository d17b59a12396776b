"""Published files that are not there any more, by their names: what commit logs still say that was published.

Of a source with offsets a file that is gone is a gap. Of others only the log knows it: each sequence that was done
since its second newest checkpoint, file by file. What was retired since, as a tombstone says, may be gone; so may all
that was there before a person set the watermark, or had the dataset rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from distcommit.model.errors import DistcommitError
from distcommit.model.log_records import (
    ByHand,
    Checkpoint,
    DatasetState,
    Done,
    Gate,
    HandAction,
    Intent,
    Rebuilt,
    Record,
    SealedSequence,
    SetWatermark,
    SetWatermarks,
)
from distcommit.model.parallel import in_flight
from distcommit.model.ports import FileSystem
from distcommit.model.steps import StepContext
from distcommit.model.urn import folder_of
from distcommit.protocol.fold import Fold
from distcommit.protocol.folding import apply
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_tombstone, published_epoch
from distcommit.protocol.validity import objection
from distcommit.steps.registry import load_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.stores.job_store import JobStore
from distcommit.stores.listing import files_below
from distcommit.stores.tombstones import read_tombstone, retired_by


@dataclass(slots=True)
class _Published:
    """Files and tombstones of a dataset, by their paths below the output, each with its epoch."""

    files: dict[str, int] = field(default_factory=dict)
    stones: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoneFile:
    """A published file that is not there: its path below the output, and the epoch that had published it."""

    path: str
    epoch: int

    @property
    def why(self) -> str:
        """What there is to say of it."""
        return (
            f"it is gone: epoch {self.epoch} has published it, as the commit log says, and nothing has taken it away"
            " since; restore it from a backup. What is to go, `distcommit retain` takes, and the audit knows"
        )


def gone_files(store: JobStore, bucket: int) -> Iterator[tuple[DatasetState, list[GoneFile]]]:
    """The datasets of a bucket of which files are gone.

    Raises:
        DistcommitError, OSError: if the log, or a folder, can't be read.
    """
    fold, published = _published(store, bucket)
    asked = [(fold.state_of(urn), known) for urn, known in sorted(published.items()) if known.files]
    look = partial(_gone, store.fs, store.roots.output)
    for (state, _), gone in zip(asked, in_flight(store.fs.parallel_calls, look, asked), strict=True):
        if gone:
            yield state, gone


def _gone(fs: FileSystem, output: str, asked: tuple[DatasetState, _Published]) -> list[GoneFile]:
    state, known = asked
    folders = (f"{parent}/{folder_of(state.dataset_urn)}" for parent in (output, f"{output}/{REJECTED_FOLDER}"))
    paths = list(chain.from_iterable(files_below(fs, folder) for folder in folders))
    there = {path.removeprefix(f"{output}/") for path in paths}
    try:
        stones = [read_tombstone(fs, path) for path in paths if is_tombstone(path)]
    except (DistcommitError, OSError):  # told where files are looked at; what it has retired is not known
        return []
    retired = retired_by(stones, state.done_epoch)
    # A replacement goes with another one, which names it, and not what it had named. A tombstone of error files that
    # were fed again goes with these.
    named = {path: published_epoch(path.rpartition("/")[2]) for path in retired if is_tombstone(path)}
    known_from = max((epoch for path, epoch in named.items() if path not in there), default=0)
    errors_from = max([known_from, *(epoch for path, epoch in known.stones.items() if path not in there)])
    return [
        GoneFile(path, epoch)
        for path, epoch in sorted(known.files.items())
        if path not in there
        and path not in retired
        and epoch >= (errors_from if path.startswith(f"{REJECTED_FOLDER}/") else known_from)
    ]


def _published(store: JobStore, bucket: int) -> tuple[Fold, dict[str, _Published]]:
    """What a log says that was published, as far as it goes back, and its fold."""
    context = StepContext(store.fs, store.roots.staging, store.roots.output, store_id=store.store_id)
    fold: Fold | None = None
    found: dict[str, _Published] = {}
    for number, segment in store.bucket_log(bucket).segments():
        record = None if isinstance(segment, DistcommitError) else segment.record
        if record is None or (fold is None and not isinstance(record, Checkpoint)):
            fold, found = None, {}  # nobody knows what it says: it is known from the next checkpoint on
            continue
        fold = fold or Fold()
        if not objection(record, fold):
            for urn in _set_by_hand(record):
                found.pop(urn, None)
            for sequence, is_whole in _done(record, fold):
                _add(found.setdefault(sequence.dataset_urn, _Published()), sequence, context, is_whole=is_whole)
        apply(number, record, fold)
    return fold or Fold(), found


def _done(record: Record, fold: Fold) -> Iterator[tuple[SealedSequence, bool]]:
    """The sequences that a record ends as published, and whether that is all of their files: of one that a person has
    accepted as it is nobody knows."""
    match record:
        case Intent(gate=Gate.PASSED):
            yield from ((sequence, True) for sequence in record.sequences)
        case Done():
            opened = (fold.state_of(name.dataset_urn).sequence for name in record.sequences)
            yield from ((sequence, True) for sequence in opened if sequence is not None)
        case ByHand(action=HandAction.ACCEPT | HandAction.GIVEN_UP):
            accepted = fold.state_of(record.sequence.dataset_urn).sequence
            yield from [(accepted, False)] if accepted is not None else []


def _set_by_hand(record: Record) -> Iterator[str]:
    """The datasets that a person has put elsewhere: what they had published before may be gone."""
    match record:
        case SetWatermark():
            yield record.dataset_urn
        case SetWatermarks():
            yield from record.watermarks
        case Rebuilt():
            yield from (state.dataset_urn for state in record.datasets)


def _add(published: _Published, sequence: SealedSequence, context: StepContext, *, is_whole: bool) -> None:
    renames = [batch for batch in sequence.steps if batch.type_name == FsRenameCommitStep.type_name]
    for step in load_steps(renames, context):
        if isinstance(step, FsRenameCommitStep):
            path = step.file.final_path
            if is_tombstone(path):
                published.stones[path] = sequence.epoch
            elif is_whole:
                published.files[path] = sequence.epoch
