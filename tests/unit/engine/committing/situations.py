"""States that killed, blocked or quarantined runs leave behind, and a check that the next run recovers from them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from functools import partial

import pytest

from distcommit.core.records.log_records import Failed
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.work_units import TaskState
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.state.task_states import TaskStateReader, record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import (
    OUTPUT,
    Machine,
    Meeting,
    Once,
    begin_ingest,
    dies,
    fails,
    go,
    ingest_all,
    published,
    reading,
    source,
    statuses,
    with_folders,
)

WORLD = World()
SIX = source(a=[2, 2], b=3, c=1, g=1, h=1, i=1)


def check_recovery(machine: Machine, data: ModelSource, world: World = WORLD) -> None:
    """Run the job once without faults and check that everything is complete."""
    before = world.watermarks(machine)
    assert go(world, machine, data).succeeded
    assert world.violation(machine, data, before) == ""


def rows(settings: RunSettings, bucket: int = 0) -> list[TaskState]:
    return TaskStateReader(settings.task_states((bucket,)), bucket).poll()


def killed_at(machine: Machine, kind: str, part: str, data: ModelSource, nth: int = 1, world: World = WORLD) -> None:
    """Run the job and kill it before its nth such call. The folders of its datasets exist already."""
    with_folders(machine, *data.datasets)
    machine.faults.append(dies(kind, part, nth))
    with pytest.raises(Crashed):
        go(world, machine, data)
    machine.restart()


def sealed_but_not_published(machine: Machine, data: ModelSource, world: World = WORLD) -> None:
    """Run the job so that it can stage and seal but not publish. Every dataset is left pending."""
    world.store(machine)
    machine.faults.append(fails(errno.EIO, "rename", OUTPUT + "/"))
    assert not go(world, machine, data).succeeded
    machine.restart()
    assert set(statuses(world, machine).values()) == {"pending"}


def twins(world: World, data: ModelSource, other: ModelSource) -> Iterator[tuple[int, Machine]]:
    """Return the machines after two attempts of one ingest task ran concurrently. The twin reads `other` and runs as a
    whole before each call of the first attempt.
    """
    for number in range(1000):
        machine = Machine()
        settings, tasks = begin_ingest(world, machine, data)
        twin = Meeting(machine, number, partial(ingest_all, reading(settings, other), tasks))
        machine.faults.append(twin)
        ingest_all(settings, tasks)
        machine.restart()
        if twin.result is None:
            return
        record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
        drained = drain_partition(settings, 0)
        assert (drained.fenced, [*drained.reasons], drained.counts.sequences_postponed) == ("", [], 0), number
        yield number, machine


def quarantined(machine: Machine, data: ModelSource) -> SealedSequence:
    """Return a machine on which dataset `a` is sealed, unpublished and quarantined."""
    WORLD.store(machine)
    with_folders(machine, "a").faults.append(fails(errno.EIO, "rename", OUTPUT + "/a/"))
    go(WORLD, machine, data)
    machine.restart()
    assert not [path for path in published(machine) if path.startswith(OUTPUT + "/a/")]
    return quarantine(machine)


def quarantine(machine: Machine) -> SealedSequence:
    """Quarantine the pending sequence of dataset `a`."""
    log = WORLD.store(machine).bucket_log(0)
    fold = log.refresh()
    sequence = fold.state_of("a").sequence
    assert sequence is not None
    log = WORLD.store(machine).bucket_log(0, fold.fence_epoch)
    run_alone(log.settle(Once(Failed(fold.fence_epoch, SequenceName("a", sequence.epoch), True, "by the test"))))
    assert statuses(WORLD, machine)["a"] == "quarantined"
    return sequence
