"""Take over the watermarks of another job, for a job that continues it in other folders and datasets.

While the watermarks are read, the other job's lock is held and all of its logs are fenced. So no paused run of the
other job can publish records above them later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.migration.foreign_positions import ForeignPositions
from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.interfaces.source import Source
from distcommit.core.interfaces.watermark_types import WATERMARK_PIN
from distcommit.core.records.job_log_records import Head
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.io_batching import run_alone
from distcommit.engine.driver.run import new_run_id
from distcommit.engine.system_clock import SystemClock
from distcommit.stores.logs.fencing import begin_run, end_run, fence_bucket, require_newest
from distcommit.stores.logs.log_anchors import record_cut_ended, require_intact
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.recorded_fixed_settings import read_settings
from distcommit.stores.state.task_states import PastStates

ANOTHER_SOURCE = (
    "this job has read another source than the one whose positions are imported: they count other records. Import"
    " positions that count in its own source, or give it new folders (paths)."
)
_NAMED = 20


@contextmanager
def closed(store: JobStore, lease_ttl_s: float) -> Iterator[None]:
    """Hold the job lock of a store and fence its older runs until the block ends. All datasets must be idle.

    Raises:
        ConflictError: if a dataset is not idle.
        LockHeldError: if a run is alive.
        StaleStoreError, LostTailError: if the store, and so its watermarks, is older than its output.
    """
    _require_idle(store)
    run_id = new_run_id()
    with JobLock(store.fs, store.roots.store, run_id, lease_ttl_s, SystemClock()):
        epoch, idle = begin_run(store, run_id), False
        heads: list[Head] = []
        try:
            job_fold, past = store.job_log().refresh(), PastStates(store.fs, store.roots.store)
            for bucket in range(store.buckets):
                log = store.bucket_log(bucket, epoch)
                require_intact(store, job_fold, bucket, log, past)
                run_alone(fence_bucket(log, epoch, run_id))
                heads.append(log.head(bucket))
            _require_idle(store)
            idle = True
            yield
        finally:
            record_cut_ended(store, epoch, heads)
            end_run(store, epoch, clean=idle)


def names_of(store: JobStore, source: Source) -> list[str]:
    """Return the recorded rule that names the store's datasets, as an override of the job file; empty if no rule is
    recorded.
    """
    setting = f"source.{source.named_by}"
    recorded = read_settings(store).settings.get(setting, "")
    return [f"{setting}={recorded}"] if source.named_by and recorded else []


def positions_of(config: JobConfig, other: JobConfig, store: JobStore) -> ForeignPositions:
    """Return the watermarks of another job, by the datasets that `config` has for the same partitions.

    Args:
        other: job that stopped, with its datasets named as in its store (`names_of`). Settings recorded in its store
            override its file.

    Raises:
        ConfigurationError: if positions of the other source have no meaning in this job's source.
        ConflictError: if a dataset of `other` is not idle.
    """
    _require_idle(store)
    require_newest(store)
    recorded = read_settings(store)
    kind = recorded.settings.get("source.type", other.source.type)
    if kind != config.source.type:
        raise ConfigurationError(
            "positions of one type of source have no meaning in another",
            id="WATERMARKS_NOT_TRANSFERABLE",
            expected=f"a job with a source of type {config.source.type}",
            found=f"job {store.job}, whose source is of type {kind}",
            todo=f"take the positions from a job with a source of type {config.source.type}",
        )
    _require_same_type(config, store, recorded.settings.get(f"source.{WATERMARK_PIN}", ""))
    _require_same_meaning(config.source, other.source, store, recorded.settings)
    foreign_positions = ForeignPositions(f"job {store.job}", {}, source_facts=dict(recorded.source_facts))
    states = stored_states(store)
    for _, state in sorted(states.items()):
        _add_partitions(config.source, other.source, state, states, foreign_positions)
    return foreign_positions


def _require_same_type(config: JobConfig, store: JobStore, other_type: str) -> None:
    """Require that this job's type of watermark is the one that the other store has recorded, `other_type`."""
    pin = config.source.fixed_settings().get(WATERMARK_PIN)
    own_type = pin.value if pin is not None else ""
    if other_type != own_type:
        raise ConfigurationError(
            "the watermarks of the other job have another type than those of this job",
            id="WATERMARKS_NOT_TRANSFERABLE",
            job=store.job,
            expected=f"watermarks of type {own_type or 'plain'}, as in this job",
            found=f"watermarks of type {other_type or 'plain'}",
            todo="import from a job whose watermarks have the same type, or let this job's source use the other job's"
            " type; nothing was written",
        )


def _require_same_meaning(source: Source, other_source: Source, store: JobStore, recorded: Mapping[str, str]) -> None:
    """Require that settings which change the meaning of positions are equal to those `recorded` in the other job's
    store.
    """
    other_settings = {
        **{f"source.{name}": pin.value for name, pin in other_source.fixed_settings().items()},
        **recorded,
    }
    own_settings = {f"source.{name}": pin for name, pin in source.fixed_settings().items() if pin.otherwise}
    differing = [name for name, pin in own_settings.items() if other_settings.get(name, "") != pin.value]
    if differing:
        raise ConfigurationError(
            "the source settings of the other job give positions another meaning",
            id="WATERMARKS_NOT_TRANSFERABLE",
            expected=", ".join(f"{name}: {other_settings.get(name, 'not set')}" for name in differing),
            found=", ".join(f"{name}: {own_settings[name].value}" for name in differing),
            todo=f"{own_settings[differing[0]].otherwise}; nothing was written",
            job=store.job,
        )


def _add_partitions(
    source: Source,
    other_source: Source,
    state: DatasetState,
    states: Mapping[str, DatasetState],
    positions: ForeignPositions,
) -> None:
    """Add the partitions of one dataset of the other job. If the other job has since read a partition under another
    name, the position under that name applies.
    """
    if state.watermark is None:
        return
    urn, incarnation, unselected = state.dataset_urn, state.watermark.incarnation, list[str]()
    for partition, position in state.watermark.positions.items():
        other_state = states.get(other_source.current_name(urn, partition), state)
        if (
            other_state is not state
            and other_state.watermark is not None
            and partition in other_state.watermark.positions
        ):
            continue
        own_urn = source.current_name(urn, partition)
        if not source.selects(own_urn, partition):
            unselected.append(partition)
            continue
        before = positions.incarnations.get(own_urn, "")
        if before and incarnation and before != incarnation:
            raise ConfigurationError(
                "the partitions of one dataset have positions of different incarnations of their source",
                id="WATERMARKS_NOT_TRANSFERABLE",
                dataset=own_urn,
                expected=f"incarnation {before} for all partitions",
                found=f"incarnation {incarnation} in dataset {urn} of the other job; the source was recreated",
                todo="run the other job, run the `distcommit dataset set-watermark` commands that it prints, and run it"
                " again; then repeat this import",
            )
        positions.incarnations[own_urn] = before or incarnation
        positions.datasets.setdefault(own_urn, {})[partition] = position
    if 0 < len(unselected) == len(state.watermark.positions):
        positions.skipped.append(f"{urn}: not a dataset of this job")
    else:
        positions.skipped.extend(f"{urn}, partition {partition}: not of this job" for partition in unselected)


def _require_idle(store: JobStore) -> None:
    busy = sorted(urn for urn, state in stored_states(store).items() if state.status is not DatasetStatus.IDLE)
    if busy:
        raise ConflictError(
            "the other job has sequences that are not done",
            id="IMPORT_WITH_OPEN_SEQUENCES",
            job=store.job,
            expected="all of its datasets to be idle",
            found=", ".join(busy[:_NAMED]) + (f" and {len(busy) - _NAMED} more" if len(busy) > _NAMED else ""),
            todo="run `distcommit recover` with the other job's own job file, or release its quarantined datasets; then"
            " import again. Nothing was written",
        )
