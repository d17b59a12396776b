"""Publishers that replace: a staged tombstone names the published files that a sequence replaces.

The committer lists the published files of the dataset at its done epoch, and stages a tombstone
(`stores.folders.tombstones`) that names them. It is sealed with the new files. The record is valid only if nothing else
of the dataset was published meanwhile, so that the tombstone is never outdated. The model is
`tests/spec/replace_model.py`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import Protocol

from distcommit.core.errors import DistcommitError, printable
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.core.records.maintenance_units import is_maintenance
from distcommit.core.work_units import ERRORS, MAIN_BRANCH, DatasetPlan, StagedFile
from distcommit.pipeline.maintenance.published_files import PublishedFiles
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.log_state import Fold
from distcommit.protocol.seal_decision import Ready
from distcommit.stores.folders.staging import StagedFiles, make_area
from distcommit.stores.folders.tombstones import build_tombstone, stage_tombstone
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)


class SealingRun(Protocol):
    @property
    def store(self) -> JobStore: ...
    @property
    def flow(self) -> TaskFlow: ...
    @property
    def run_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...


def stage_replacements(
    settings: SealingRun,
    bucket: int,
    fold: Fold,
    ready_datasets: Iterable[tuple[DatasetPlan, Ready, StagedFiles]],
    failures: dict[str, Exception],
) -> list[tuple[DatasetPlan, Ready, StagedFiles, StagedFile | None]]:
    """Stage a tombstone of the replaced files for each ready dataset, durably. Return the datasets with their
    tombstones; the tombstone is None if the dataset's files are only added.

    If a tombstone cannot be created, its dataset is left out of the result, and a later call tries again.

    Args:
        bucket: bucket of the datasets.
        fold: state of the bucket's log, in which the datasets may be sealed.
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


def _stage(settings: SealingRun, bucket: int, plan: DatasetPlan, ready: Ready, done_epoch: int) -> StagedFile:
    store, publish = settings.store, settings.flow.publish
    identity = AttemptIdentity(
        settings.run_id, settings.epoch, plan.dataset_urn, ready.winners[0].work_unit_id, uuid.uuid4().hex
    )
    new_paths = [file.final_path for state in ready.winners for file in state.files]
    published = PublishedFiles(store.fs, store.roots.output, plan.dataset_urn, done_epoch)
    superseded = published.live_in(MAIN_BRANCH, ERRORS)
    if publish == "replace_partitions":  # error files are in no partition
        folders = {path.rpartition("/")[0] for path in new_paths}
        superseded = published.live_in(MAIN_BRANCH, location=lambda path: path.rpartition("/")[0] in folders)
    files, records = published.superseded(superseded, is_expired=False)
    tombstone = build_tombstone(identity, publish, done_epoch, new_paths, files, records)
    return stage_tombstone(make_area(store.fs, store.roots.staging, store.roots.output, bucket, identity), tombstone)
