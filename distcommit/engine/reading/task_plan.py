"""The work of one ingest task."""

from __future__ import annotations

import logging

from distcommit.core.errors import DistcommitError
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.engine.node_failures import hand_back
from distcommit.engine.planning.read_priority import by_priority
from distcommit.engine.planning.work_distribution import buckets_read, units_read
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.shared_names import bucket_of_work_unit
from distcommit.stores.state.run_plans import Manifest, PlanReader, read_manifest

logger = logging.getLogger(__name__)


def ingest_tasks(settings: RunSettings, manifest: Manifest) -> int:
    """Return the number of ingest tasks: one for each group of large work units and each partition."""
    return len(manifest.large_units) + settings.partitions


class TaskPlan:
    """The work of one ingest task.

    A bucket whose plan cannot be read is left out. Its datasets fail in the drain, which reads the plan again.

    Args:
        task: number of the task. `settings.alone` limits the task to one work unit.

    Attributes:
        owned: the buckets that the task's partition owns.
        plans: by bucket: all plans of owned buckets, and of other buckets the plans whose work units this task reads.
        units: the work units that the task reads, in order.
        bucket_of: the bucket of each dataset that the task reads.
        tasks: number of tasks.
    """

    def __init__(self, settings: RunSettings, task: int) -> None:
        fs, root = settings.store.fs, settings.store.roots.store
        self._settings, self._task = settings, task
        self._manifest = read_manifest(fs, root, settings.run_id)
        partition = task - len(self._manifest.large_units)
        self.tasks = max(ingest_tasks(settings, self._manifest), task + 1)
        self.owned = settings.buckets_of(partition) if partition >= 0 and not settings.alone else range(0)
        self.plans: dict[int, list[DatasetPlan]] = {}
        self.units: list[WorkUnit] = []
        self.bucket_of: dict[str, int] = {}
        plans = PlanReader(fs, root, self._manifest)
        for bucket in self._buckets():
            try:
                self._take(bucket, plans.of(bucket))
            except (DistcommitError, OSError) as error:
                hand_back(settings, error)
                logger.exception("a bucket's plan can't be read", extra={"bucket": bucket})
        if settings.freshness:
            self.units = by_priority(self.units)

    def _buckets(self) -> list[int]:
        if not self._settings.alone:
            return buckets_read(self._manifest, self._task, self.owned, self._settings.partitions)
        bucket = bucket_of_work_unit(self._settings.alone)
        return [] if bucket is None else [bucket]

    def _take(self, bucket: int, plans: list[DatasetPlan]) -> None:
        if alone := self._settings.alone:
            units = [unit for plan in plans for unit in plan.work_units if unit.work_unit_id == alone]
        else:
            in_turn, partitions = self._settings.resume_across_runs, self._settings.partitions
            units = units_read(self._manifest, self._task, bucket, plans, partitions, in_turn=in_turn)
        read = dict.fromkeys((unit.dataset_urn for unit in units), bucket)
        if bucket not in self.owned:
            plans = [plan for plan in plans if plan.dataset_urn in read]
        if plans:
            self.plans[bucket] = plans
        self.units += units
        self.bucket_of |= read
