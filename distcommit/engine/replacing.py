"""Publishers that replace, and retention: what a sequence that is about to be sealed takes the place of, or away.

Who seals looks at what is live on the dataset's done epoch, and stages a replacement (`stores.tombstones`) that names
it. Its step is sealed with those of the new files. The record is valid only while nothing else is published of the
dataset, so that what was seen then is what is there. `tests/spec/replace_model.py` is the model of it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

from distcommit.engine.settings import RunSettings
from distcommit.ingest.fed_again import FedAgain
from distcommit.ingest.retained import Horizon
from distcommit.model.errors import DistcommitError, printable
from distcommit.model.ports import FileStatus, FileSystem
from distcommit.model.sink import AttemptIdentity
from distcommit.model.urn import folder_of
from distcommit.model.work import MAIN_BRANCH, DatasetPlan, StagedFile
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths import REJECTED_FOLDER, is_tombstone
from distcommit.protocol.readiness import Ready
from distcommit.sinks.files.footer import Footer, read_footer
from distcommit.sinks.files.offsets import OffsetSets, parsed
from distcommit.stores.listing import files_below
from distcommit.stores.staging import StagedFiles, make_area
from distcommit.stores.tombstones import (
    ReplacedRecords,
    RetiredFile,
    Retires,
    Tombstone,
    newest_replacements,
    read_tombstone,
    replacement_of,
    retired_by,
    stage_tombstone,
)

logger = logging.getLogger(__name__)


def with_replacements(
    settings: RunSettings,
    bucket: int,
    fold: Fold,
    found: Iterable[tuple[DatasetPlan, Ready, StagedFiles]],
    untold: dict[str, Exception],
) -> list[tuple[DatasetPlan, Ready, StagedFiles, StagedFile | None]]:
    """What is found ready, with the staged file that retires what the new files take the place of, durable; None where
    they are added to what is there. Where it can't be told what that is, the dataset is left out: whoever comes next
    tries again.

    Args:
        settings: the run.
        bucket: the datasets'.
        fold: of its log; they may be sealed in it.
        found: datasets that are ready, the attempts that win, and what is staged of them.
        untold: is told of datasets that are left out, and why.

    Raises:
        OSError: if what was staged can't be made durable.
    """
    whole: list[tuple[DatasetPlan, Ready, StagedFiles, StagedFile | None]] = []
    for plan, ready, staged in found:
        urn = plan.dataset_urn
        try:
            chosen = _chosen(settings, plan, ready)
            stone = _stage(settings, bucket, plan, ready, fold.state_of(urn).done_epoch, *chosen) if chosen else None
            whole.append((plan, ready, staged, stone))
        except (DistcommitError, OSError) as error:
            logger.warning("nothing can be replaced: %s", error, extra={"dataset": printable(urn)})
            untold[urn] = error
    if any(stone is not None for *_, stone in whole):
        settings.store.fs.sync_tree(settings.store.roots.staging)
    return whole


_IsChosen = Callable[[str, Footer, FileStatus], bool]
"""Whether a live file, by its path below the output, goes."""


def _chosen(settings: RunSettings, plan: DatasetPlan, ready: Ready) -> tuple[Retires, _IsChosen] | None:
    """What goes of a dataset's files, and how; None if nothing does."""
    horizon = Horizon.of(plan.work_units, settings.flow)
    if horizon is not None:
        past = horizon.is_past
        return "retain", lambda path, of, found: of.kind == "data" and past(path, of.branch or MAIN_BRANCH, found)
    publish = settings.flow.publish
    if publish == "append" or any(FedAgain.of(unit) for unit in plan.work_units):  # that is added, always
        return None
    if publish == "replace":
        return publish, lambda *_: True
    folders = {file.final_path.rpartition("/")[0] for state in ready.winners for file in state.files}
    errors = f"{REJECTED_FOLDER}/"  # these are in no partition
    return publish, lambda path, *_: path.rpartition("/")[0] in folders and not path.startswith(errors)


def _stage(
    settings: RunSettings,
    bucket: int,
    plan: DatasetPlan,
    ready: Ready,
    done_epoch: int,
    publish: Retires,
    is_chosen: _IsChosen,
) -> StagedFile:
    store = settings.store
    identity = AttemptIdentity(
        settings.run_id, settings.epoch, plan.dataset_urn, ready.winners[0].work_unit_id, uuid.uuid4().hex
    )
    published = [file.final_path for state in ready.winners for file in state.files]
    live = _Live(store.fs, store.roots.output, plan.dataset_urn, done_epoch)
    files, replaced = live.retired(is_chosen, retained=publish == "retain")
    stone = replacement_of(identity, publish, done_epoch, published, files, replaced)
    return stage_tombstone(make_area(store.fs, store.roots.staging, store.roots.output, bucket, identity), stone)


class _Live:
    """What is published of a dataset, done and not retired."""

    def __init__(self, fs: FileSystem, output: str, urn: str, done_epoch: int) -> None:
        self._fs, self._output, self._urn, self._done_epoch = fs, output, urn, done_epoch
        folder = folder_of(urn)
        below = (f"{output}/{folder}", f"{output}/{REJECTED_FOLDER}/{folder}")
        self._paths = [path.removeprefix(f"{output}/") for parent in below for path in files_below(fs, parent)]
        stones = [read_tombstone(fs, f"{output}/{path}") for path in self._paths if is_tombstone(path)]
        self._retired = retired_by(stones, done_epoch)
        self._before: Sequence[Tombstone] = newest_replacements(stones, done_epoch)

    def retired(self, is_chosen: _IsChosen, *, retained: bool) -> tuple[list[RetiredFile], list[ReplacedRecords]]:
        """What goes, the replacements before this one last; and what is to be known of it."""
        files, known = list[RetiredFile](), _Known()
        paths = [path for path in self._paths if path not in self._retired and not is_tombstone(path)]
        for path, footer in self._ours(paths):
            status = self._status(path)
            if is_chosen(path, footer, status):
                files.append(RetiredFile(path, status.size_bytes, "", footer.records))
                known.add(footer, retained=retained)
        for stone in self._before:
            files.append(RetiredFile(stone.path, self._status(stone.path).size_bytes, "", 0))
            known.keep(stone.replaced)
        return files, known.to_records()

    def _ours(self, paths: Iterable[str]) -> Iterator[tuple[str, Footer]]:
        for path in paths:
            footer = read_footer(self._fs, f"{self._output}/{path}")
            if footer is not None and footer.dataset_urn == self._urn and footer.epoch <= self._done_epoch:
                yield path, footer

    def _status(self, path: str) -> FileStatus:
        found = self._fs.status(f"{self._output}/{path}")
        if found is None:
            raise FileNotFoundError(f"{self._output}/{path}")
        return found


class _Known:
    """Input records of which retired files say what became of them."""

    def __init__(self) -> None:
        self._sets: dict[tuple[str, tuple[str, ...], bool], dict[str, OffsetSets]] = {}

    def add(self, footer: Footer, *, retained: bool) -> None:
        offsets, holes = parsed(footer.offsets), parsed(footer.holes)
        branches = [footer.branch] if footer.branch else footer.branches
        key = footer.incarnation, footer.branches, retained
        self._update(key, branches, offsets)
        self._update(key, footer.branches, holes)
        for branch, text in footer.filtered.items():
            self._update(key, [branch], parsed(text))

    def keep(self, replaced: Iterable[ReplacedRecords]) -> None:
        for each in replaced:
            for branch, text in each.offsets.items():
                self._update((each.incarnation, each.branches, each.retained), [branch], parsed(text))

    def to_records(self) -> list[ReplacedRecords]:
        return [
            ReplacedRecords(
                incarnation, branches, {branch: found.to_text() for branch, found in sorted(sets.items())}, retained
            )
            for (incarnation, branches, retained), sets in self._sets.items()
        ]

    def _update(self, key: tuple[str, tuple[str, ...], bool], branches: Iterable[str], offsets: OffsetSets) -> None:
        sets = self._sets.setdefault(key, {})
        for branch in branches if offsets.count() else ():
            sets.setdefault(branch, OffsetSets()).update(offsets)
