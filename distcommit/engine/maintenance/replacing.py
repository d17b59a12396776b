"""Publishers that replace: determine the published files which a sequence about to be sealed replaces.

The committer lists the published files of the dataset at its done epoch, and stages a tombstone
(`stores.folders.tombstones`) that names them. The tombstone's step is sealed with the steps of the new files. The
record is valid only if nothing else of the dataset was published meanwhile, so that the tombstone is never outdated.
`tests/spec/replace_model.py` is its model.
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
from distcommit.pipeline.maintenance.expire import ExpiryCutoff
from distcommit.pipeline.maintenance.reprocess import ReprocessedFiles
from distcommit.pipeline.maintenance.superseded_records import SupersededRecords
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_tombstone, published_folder
from distcommit.protocol.readiness import Ready
from distcommit.sinks.files.footer import Footer, read_footer
from distcommit.stores.folders.staging import StagedFiles, make_area
from distcommit.stores.folders.tombstones import (
    ReplacedRecords,
    RetiredFile,
    Tombstone,
    build_replacement,
    newest_replacements,
    read_tombstone,
    retired_by,
    stage_tombstone,
)
from distcommit.stores.folders.trees import files_below

logger = logging.getLogger(__name__)


def stage_replacements(
    settings: RunSettings,
    bucket: int,
    fold: Fold,
    ready_datasets: Iterable[tuple[DatasetPlan, Ready, StagedFiles]],
    failures: dict[str, Exception],
) -> list[tuple[DatasetPlan, Ready, StagedFiles, StagedFile | None]]:
    """Return the datasets with the staged tombstone that retires the files they replace, durably staged; None for
    datasets to which files are only added. A dataset whose tombstone cannot be made is left out, for a later try.

    Args:
        settings: the run.
        bucket: bucket of the datasets.
        fold: view of its log, in which they may be sealed.
        ready_datasets: datasets that are ready, their winning attempts and staged files.
        failures: gets the error of each dataset that is left out.

    Raises:
        OSError: if staged tombstones cannot be made durable.
    """
    if settings.flow.publish == "append":
        return [(*ready_dataset, None) for ready_dataset in ready_datasets]
    with_stones: list[tuple[DatasetPlan, Ready, StagedFiles, StagedFile | None]] = []
    for plan, ready, staged in ready_datasets:
        urn, is_extra = plan.dataset_urn, any(map(is_maintenance, plan.work_units))
        try:
            tombstone = None if is_extra else _stage(settings, bucket, plan, ready, fold.state_of(urn).done_epoch)
            with_stones.append((plan, ready, staged, tombstone))
        except (DistcommitError, OSError) as error:
            logger.warning("nothing can be replaced: %s", error, extra={"dataset": printable(urn)})
            failures[urn] = error
    if any(tombstone is not None for *_, tombstone in with_stones):
        settings.store.fs.sync_tree(settings.store.roots.staging)
    return with_stones


def is_maintenance(unit: WorkUnit) -> bool:
    """Return whether a work unit reads published or rejected data of the job, and nothing of the source. It is
    published whole or not at all, and its files are added, whatever the job's publisher does."""
    return ReprocessedFiles.of(unit) is not None or ExpiryCutoff.of(unit) is not None


def _stage(settings: RunSettings, bucket: int, plan: DatasetPlan, ready: Ready, done_epoch: int) -> StagedFile:
    store, publish = settings.store, settings.flow.publish
    identity = AttemptIdentity(
        settings.run_id, settings.epoch, plan.dataset_urn, ready.winners[0].work_unit_id, uuid.uuid4().hex
    )
    published = [file.final_path for state in ready.winners for file in state.files]
    live = _PublishedFiles(store.fs, store.roots.output, plan.dataset_urn, done_epoch)
    files, replaced = live.retired(publish, ready.winners)
    tombstone = build_replacement(identity, publish, done_epoch, published, files, replaced)
    return stage_tombstone(make_area(store.fs, store.roots.staging, store.roots.output, bucket, identity), tombstone)


class _PublishedFiles:
    """The published files of a dataset that are done and not retired."""

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
        """Return the files that these attempts' files replace, older tombstones last; and the records in them."""
        folders = {file.final_path.rpartition("/")[0] for state in winners for file in state.files}
        files, known = list[RetiredFile](), SupersededRecords()
        paths = [path for path in self._paths if path not in self._retired and not is_tombstone(path)]
        if publish == "replace_partitions":
            errors = f"{REJECTED_FOLDER}/"  # these are in no partition
            paths = [path for path in paths if path.rpartition("/")[0] in folders and not path.startswith(errors)]
        for path, footer in self._own_files(paths):
            files.append(RetiredFile(path, self._size(path), "", footer.records))
            known.add(footer, retained=False)
        for tombstone in self._before:
            files.append(RetiredFile(tombstone.path, self._size(tombstone.path), "", 0))
            known.keep(tombstone.replaced)
        return files, known.to_records()

    def _own_files(self, paths: Iterable[str]) -> Iterator[tuple[str, Footer]]:
        for path in paths:
            footer = read_footer(self._fs, f"{self._output}/{path}")
            if footer is not None and footer.dataset_urn == self._urn and footer.epoch <= self._done_epoch:
                yield path, footer

    def _size(self, path: str) -> int:
        status = self._fs.status(f"{self._output}/{path}")
        if status is None:
            raise FileNotFoundError(f"{self._output}/{path}")
        return status.size_bytes
