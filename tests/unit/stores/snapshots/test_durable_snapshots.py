"""A snapshot names only state that survives a power loss, even after a commit whose process died before its sync."""

from __future__ import annotations

import random
from contextlib import suppress

from distcommit.core.records.bucket_and_dataset_snapshots import DatasetSnapshot
from distcommit.core.records.log_records import Done
from distcommit.core.support.io_batching import run_alone
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.stores.snapshots.snapshot_deltas import published_datasets, read_chain, write_snapshot_entry
from distcommit.stores.snapshots.snapshot_manifests import prepare_snapshots
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, begin_ingest, source, written

WORLD = World()


def test_snapshot_after_an_unsynced_commit_names_only_durable_datasets() -> None:
    machine, is_put = Machine(), False

    def dies_before_the_sync(operation: Operation) -> None:
        nonlocal is_put
        if is_put and operation.kind in ("fsync_folder", "fsync", "syncfs"):
            raise Crashed
        is_put = is_put or isinstance(written(machine, operation), Done)

    settings, _ = begin_ingest(WORLD, machine, source(a=2))
    machine.syncfs("/")
    machine.faults.append(dies_before_the_sync)
    with suppress(Crashed):
        ingest_partition(settings, 0)
    machine.restart()
    store = WORLD.store(machine)
    prepare_snapshots(store)
    log = store.bucket_log(0, settings.epoch)
    assert published_datasets(log.refresh()), "the process must die after it put the DONE record"
    snapshot = run_alone(write_snapshot_entry(store, None, 0, log, ()))
    named: dict[str, DatasetSnapshot] = read_chain(store.fs, store.roots.store, snapshot)
    losses = 0
    for after in machine.after_power_loss(random.Random(1), 7, 8):
        losses += 1
        assert published_datasets(WORLD.store(after).bucket_log(0).refresh()) == named
    assert losses
