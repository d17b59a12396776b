"""Change a job's number of buckets, or the names or groups of its datasets."""

from __future__ import annotations

import msgspec

from distcommit.app.job_file.fixed_settings import movable
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConfigurationError
from distcommit.engine.driver.run import new_run_id
from distcommit.engine.run_events import Observer, Progressed
from distcommit.engine.system_clock import SystemClock
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import MAX_BUCKETS, JobStore, open_store
from distcommit.stores.state.recorded_fixed_settings import read_settings, require_settings


class RebucketResult(msgspec.Struct, frozen=True):
    """The result of `store rebucket`.

    Attributes:
        job: name of the job.
        buckets_before: number of buckets before the move.
        buckets: number of buckets after the move.
        generation: generation of the current bucket logs.
        epoch: epoch of the move; 0 if nothing had to be changed.
        datasets: number of datasets in the new logs.
        is_resumed: whether the command finished a move that an interrupted command had begun.
        old_logs: absolute path of the old logs, which are no longer read; empty if nothing had to be changed.
        job_file: change that the operator must make in the job file; empty if it already fits.
        settings: new values of the changed fixed settings, by key.
    """

    job: str
    buckets_before: int
    buckets: int
    generation: int
    epoch: int = 0
    datasets: int = 0
    is_resumed: bool = False
    old_logs: str = ""
    job_file: str = ""
    settings: dict[str, str] = {}


def rebucket_job(folders: JobFolders, buckets: int | None, observer: Observer) -> RebucketResult:
    """Move all datasets to a new number of buckets, or to new names or groups. All must be idle, and no run may be
    alive.

    Only two kinds of fixed settings may have changed: those that group datasets, and those by which the source names
    them. Renamed datasets continue at their positions.

    Args:
        folders: the job, with the new settings.
        buckets: new number of buckets; None to keep it. Afterwards the job file must have this number, or none.

    Raises:
        ConflictError: if a dataset is not idle, another move is in progress, or a stopped dataset would be renamed.
            Nothing was changed.
        LockHeldError, FencedError: if another process uses the store.
        ConfigurationError: if another fixed setting differs, or the number is invalid.
        StaleStoreError, CorruptError: if the store is older than its output, or can't be read.
    """
    if buckets is not None and not 1 <= buckets <= MAX_BUCKETS:
        raise ConfigurationError(
            "no job has so many buckets", id="ARGUMENT_INVALID", expected=f"1 to {MAX_BUCKETS}", found=str(buckets)
        )
    config, (fs, roots) = folders.config, folders.roots()
    store = open_store(fs, roots, config.job, create=False, groups=folders.groups)
    move, run_id = _move(folders, store, buckets), new_run_id()
    with JobLock(fs, roots.store, run_id, config.lock.lease_ttl_s, SystemClock()):
        done = rebucket(store, move, run_id, lambda step: observer.observe(Progressed(step)))
    named, now = config.commit.buckets, done.store.buckets
    return RebucketResult(
        job=config.job,
        buckets_before=store.buckets,
        buckets=now,
        generation=done.store.generation,
        epoch=done.epoch,
        datasets=done.datasets,
        is_resumed=done.is_resumed,
        old_logs=store.bucket_log(0).folder.rpartition("/")[0] if done.epoch else "",
        settings=dict(move.settings) if done.epoch else {},
        job_file="" if named in (None, now) else f"set commit.buckets to {now} (it says {named}), or leave it out",
    )


def _move(folders: JobFolders, store: JobStore, buckets: int | None) -> Move:
    """Return the requested move, or the interrupted one if it is equal.

    Raises:
        ConfigurationError: if a setting that must not change differs from the store's.
    """
    source, fixed_settings = folders.config.source, folders.fixed_settings()
    recorded, under_way = read_settings(store).settings, store.job_log().refresh().under_way
    before = (
        {name: recorded.get(name, pin.unrecorded) for name, pin in fixed_settings.settings.items()} if recorded else {}
    )
    if under_way is not None:  # its settings may be recorded by now
        changed = set(under_way.settings)
    else:
        changed = {name for name in movable(source) if before.get(name) and before[name] != fixed_settings[name]}
    require_settings(store, fixed_settings.with_values({name: before[name] for name in changed & before.keys()}))
    return Move(
        buckets or (under_way.buckets if under_way is not None else store.buckets),
        {name: fixed_settings[name] for name in changed if name in fixed_settings.settings},
        source.current_name if f"source.{source.named_by}" in changed else None,
    )
