"""Each run takes its own epoch, and fences are durable before a later record is put."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from distcommit.core.errors import FencedError, StorageRefusedError
from distcommit.core.support.io_batching import run_alone
from distcommit.stores.logs.fencing import fence_bucket, fence_job
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.simulated_posix import SimulatedPosix
from tests.unit.engine.committing.situations import WORLD, check_recovery
from tests.unit.engine.driver.machines import Machine, Meeting, fails, on_every_power_loss, source


def test_two_concurrent_runs_never_share_an_epoch() -> None:
    refused = 0
    for number in range(100):
        machine = Machine()
        store = WORLD.store(machine)
        meeting = Meeting(machine, number, lambda store=store: fence_job(store, "r2"))  # type: ignore[misc]
        machine.faults.append(meeting)
        try:
            epoch = fence_job(store, "r1")
        except FencedError:
            refused += 1
        else:
            if meeting.result is None:
                break
            assert epoch != meeting.result, number
    assert refused >= 3
    assert number >= refused


def test_fence_that_races_with_the_checkpoint_of_an_older_run_succeeds() -> None:
    machine = Machine()
    store = WORLD.store(machine)
    first = fence_job(store, "r1")

    def race(operation: Operation) -> None:
        if operation.kind == "rename" and "/log/job/" in operation.path:
            machine.faults.clear()
            run_alone(store.job_log(first).checkpoint(at_least=1))

    machine.faults.append(race)
    assert fence_job(store, "r2") > first + 1


def test_unwritable_job_log_raises_storage_error_instead_of_fenced_error() -> None:
    machine = Machine()
    store = WORLD.store(machine)
    machine.faults.append(fails(errno.ENOSPC, "write", "/log/job/"))
    with pytest.raises(StorageRefusedError, match="No space left"):
        fence_job(store, "r1")
    assert not [path for path in machine.paths("/job/store/log") if ".tmp-" in path]
    machine.restart()
    check_recovery(machine, source(a=1))


def test_power_loss_never_leaves_a_hole_in_a_log_above_the_record_of_a_dead_writer() -> None:
    machine = Machine()
    log = WORLD.store(machine).bucket_log(0, 1)
    machine.syncfs("/")
    put: list[str] = []

    def die(operation: Operation) -> None:
        if put and operation.kind == "fsync_folder":
            raise Crashed
        if operation.kind == "rename":
            put.append(operation.path)

    machine.faults.append(die)
    with suppress(Crashed):
        run_alone(fence_bucket(log, 1, "dead"))
    machine.restart()
    assert WORLD.store(machine).bucket_log(0).refresh().fence_epoch == 1
    epochs: list[int] = []

    def record_epoch(after: SimulatedPosix, where: str) -> None:
        epochs.append(WORLD.store(after).bucket_log(0).refresh().fence_epoch)

    on_every_power_loss(machine, record_epoch)
    run_alone(fence_bucket(WORLD.store(machine).bucket_log(0, 2), 2, "alive"))
    machine.mkdir("/end")
    assert {0, 1, 2} == set(epochs)
