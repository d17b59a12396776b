"""Publishers that replace: what a sequence that is about to be sealed takes the place of.

Who seals looks at what is live on the dataset's done epoch, and stages a replacement (`stores.folders.tombstones`) that
names it. Its step is sealed with those of the new files. The record is valid only while nothing else is published of
the dataset, so that what was seen then is what is there. `tests/spec/replace_model.py` is the model of it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence

from distcommit.core.errors import DistcommitError, printable
from distcommit.core.interfaces.sink import AttemptIdentity, Publish
from distcommit.core.ports import FileSystem
from distcommit.core.work import ERRORS, MAIN_BRANCH, DatasetPlan, StagedFile, TaskState, WorkUnit
from distcommit.engine.settings import RunSettings
from distcommit.pipeline.maintenance.expire import Horizon
from distcommit.pipeline.maintenance.input_records import KnownRecords
from distcommit.pipeline.maintenance.reprocess import FedAgain
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_tombstone, published_folder
from distcommit.protocol.readiness import Ready
from distcommit.sinks.files.footer import Footer, read_footer
from distcommit.stores.folders.listing import files_below
from distcommit.stores.folders.staging import StagedFiles, make_area
from distcommit.stores.folders.tombstones import (
    ReplacedRecords,
    RetiredFile,
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
    if settings.flow.publish == "append":
        return [(*each, None) for each in found]
    whole: list[tuple[DatasetPlan, Ready, StagedFiles, StagedFile | None]] = []
    for plan, ready, staged in found:
        urn, again = plan.dataset_urn, any(map(is_maintenance, plan.work_units))
        try:
            stone = None if again else _stage(settings, bucket, plan, ready, fold.state_of(urn).done_epoch)
            whole.append((plan, ready, staged, stone))
        except (DistcommitError, OSError) as error:
            logger.warning("nothing can be replaced: %s", error, extra={"dataset": printable(urn)})
            untold[urn] = error
    if any(stone is not None for *_, stone in whole):
        settings.store.fs.sync_tree(settings.store.roots.staging)
    return whole


def is_maintenance(unit: WorkUnit) -> bool:
    """Whether it reads what the job has published or turned away, and nothing of the source: all of it or nothing, and
    what it publishes stands beside what is there, whatever the job's publisher does."""
    return FedAgain.of(unit) is not None or Horizon.of(unit) is not None


def _stage(settings: RunSettings, bucket: int, plan: DatasetPlan, ready: Ready, done_epoch: int) -> StagedFile:
    store, publish = settings.store, settings.flow.publish
    identity = AttemptIdentity(
        settings.run_id, settings.epoch, plan.dataset_urn, ready.winners[0].work_unit_id, uuid.uuid4().hex
    )
    published = [file.final_path for state in ready.winners for file in state.files]
    live = _Live(store.fs, store.roots.output, plan.dataset_urn, done_epoch)
    files, replaced = live.retired(publish, ready.winners)
    stone = replacement_of(identity, publish, done_epoch, published, files, replaced)
    return stage_tombstone(make_area(store.fs, store.roots.staging, store.roots.output, bucket, identity), stone)


class _Live:
    """What is published of a dataset, done and not retired."""

    def __init__(self, fs: FileSystem, output: str, urn: str, done_epoch: int) -> None:
        self._fs, self._output, self._urn, self._done_epoch = fs, output, urn, done_epoch
        below = [f"{output}/{published_folder(urn, branch)}" for branch in (MAIN_BRANCH, ERRORS)]
        self._paths = [path.removeprefix(f"{output}/") for parent in below for path in files_below(fs, parent)]
        stones = [read_tombstone(fs, f"{output}/{path}") for path in self._paths if is_tombstone(path)]
        self._retired = retired_by(stones, done_epoch)
        self._before: Sequence[Tombstone] = newest_replacements(stones, done_epoch)

    def retired(
        self, publish: Publish, winners: Sequence[TaskState]
    ) -> tuple[list[RetiredFile], list[ReplacedRecords]]:
        """What goes for these attempts' files, the replacements before this one last; and what is to be known of it."""
        folders = {file.final_path.rpartition("/")[0] for state in winners for file in state.files}
        files, known = list[RetiredFile](), KnownRecords()
        paths = [path for path in self._paths if path not in self._retired and not is_tombstone(path)]
        if publish == "replace_partitions":
            errors = f"{REJECTED_FOLDER}/"  # these are in no partition
            paths = [path for path in paths if path.rpartition("/")[0] in folders and not path.startswith(errors)]
        for path, footer in self._ours(paths):
            files.append(RetiredFile(path, self._size(path), "", footer.records))
            known.add(footer, retained=False)
        for stone in self._before:
            files.append(RetiredFile(stone.path, self._size(stone.path), "", 0))
            known.keep(stone.replaced)
        return files, known.to_records()

    def _ours(self, paths: Iterable[str]) -> Iterator[tuple[str, Footer]]:
        for path in paths:
            footer = read_footer(self._fs, f"{self._output}/{path}")
            if footer is not None and footer.dataset_urn == self._urn and footer.epoch <= self._done_epoch:
                yield path, footer

    def _size(self, path: str) -> int:
        found = self._fs.status(f"{self._output}/{path}")
        if found is None:
            raise FileNotFoundError(f"{self._output}/{path}")
        return found.size_bytes
