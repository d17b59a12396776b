"""Another number of buckets for a job."""

from __future__ import annotations

import msgspec

from distcommit.app.job_folders import JobFolders
from distcommit.engine.clock import SystemClock
from distcommit.engine.events import Observer, Progress, Progressed
from distcommit.engine.run import new_run_id
from distcommit.model.errors import ConfigurationError
from distcommit.stores.job_lock import JobLock
from distcommit.stores.job_store import MAX_BUCKETS, open_store
from distcommit.stores.pinned import require_settings
from distcommit.stores.rebucket import rebucket


class RebucketResult(msgspec.Struct, frozen=True):
    """What was done. `epoch`: the number that it took, 0 if there was nothing to do. `went_on`: with what an earlier
    command had begun. `old_logs`: where the logs before are, absolute. `job_file`: what is to be changed in it."""

    job: str
    buckets_before: int
    buckets: int
    generation: int
    epoch: int = 0
    datasets: int = 0
    went_on: bool = False
    old_logs: str = ""
    job_file: str = ""


def rebucket_job(folders: JobFolders, buckets: int, observer: Observer) -> RebucketResult:
    """What `Job.rebucket` does. All datasets have to be idle, and no run may be alive.

    Args:
        folders: the job's.
        buckets: how many there are to be; the job file must name them afterwards, or none.
        observer: told each step.

    Raises:
        ConflictError: if a dataset is not idle, or a move to another number is under way; nothing was changed.
        LockHeldError, FencedError: if somebody else is at work.
        ConfigurationError: if the store was filled with other settings, or no job has so many buckets.
        StaleStoreError, CorruptError: if the store is older than its output, or can't be read.
    """
    if not 1 <= buckets <= MAX_BUCKETS:
        raise ConfigurationError("no job has so many buckets", expected=f"1 to {MAX_BUCKETS}", found=str(buckets))
    config, (fs, roots) = folders.config, folders.places()
    store = open_store(fs, roots, config.job, create=False, groups=folders.groups)
    require_settings(store, folders.pinned())
    run_id = new_run_id()
    with JobLock(fs, roots.store, run_id, config.lock.lease_ttl_s, SystemClock()):
        done = rebucket(store, buckets, run_id, lambda step: observer.observe(Progressed(step, Progress())))
    named, now = config.commit.buckets, done.store.buckets
    return RebucketResult(
        job=config.job,
        buckets_before=store.buckets,
        buckets=now,
        generation=done.store.generation,
        epoch=done.epoch,
        datasets=done.datasets,
        went_on=done.went_on,
        old_logs=store.bucket_log(0).folder.rpartition("/")[0] if done.epoch else "",
        job_file="" if named in (None, now) else f"set commit.buckets to {now} (it says {named}), or leave it out",
    )
