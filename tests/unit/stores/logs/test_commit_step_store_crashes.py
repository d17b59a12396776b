"""The API of the original design under kills and power losses: removal, and sequences sealed by another process."""

from __future__ import annotations

from contextlib import suppress

import pytest

from distcommit.core.errors import FencedError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import Intent
from distcommit.core.watermark import Watermark
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import OUTPUT, STAGING, Machine, dies_at, on_every_power_loss, written


def own_store(machine: Machine) -> LogCommitStepStore:
    return LogCommitStepStore(
        SimulatedFileSystem(machine), "/job/stores", StepContext(SimulatedFileSystem(machine), STAGING, OUTPUT), 2
    )


def one_round(store: LogCommitStepStore, low: Watermark | None, high: int) -> None:
    """Move the watermark of `d` by one sequence."""
    store.create("s", "d")
    store.put("s", "d", HighWatermarkCommitStep("d", low, Watermark({"": high})))
    store.seal("s", "d")
    sequence = store.get_commit_sequence("s", "d")
    assert sequence is not None
    sequence.commit()
    assert store.watermark("s", "d") == Watermark({"": high})


def test_removed_store_leaves_no_file() -> None:
    machine = Machine()
    store = own_store(machine)
    one_round(store, None, 3)
    machine.put("/job/stores/s/.tmp-store.json-1", b"orphaned by a dead process")
    assert store.remove("s")
    assert machine.scandir("/job/stores") == []
    one_round(own_store(machine), None, 1)


def test_store_whose_removal_was_killed_is_complete_or_recreated() -> None:
    for number in range(100):
        machine = Machine()
        one_round(own_store(machine), None, 3)
        store = own_store(machine)
        assert store.watermark("s", "d") == Watermark({"": 3})
        machine.faults.append(dies_at(number))
        try:
            store.remove("s")
        except Crashed:
            machine.restart()
        else:
            break
        again = own_store(machine)
        if again.exists("s"):
            one_round(again, Watermark({"": 3}), 4)
        else:
            one_round(again, None, 1)
    assert number > 5


def test_power_loss_during_a_removal_leaves_a_complete_store_or_none() -> None:
    machine = Machine()
    store = own_store(machine)
    one_round(store, None, 1)
    machine.syncfs("/")
    wrong: list[str] = []

    def check(after: SimulatedPosix, where: str) -> None:
        survivor = own_store_at(after)
        whole = survivor.exists("s")
        survivor.create("s", "d")
        if survivor.watermark("s", "d") != (Watermark({"": 1}) if whole else None):
            wrong.append(where)

    on_every_power_loss(machine, check)
    assert store.remove("s")
    machine.mkdir("/end")  # a last power loss
    assert wrong == []


def test_store_executes_no_sequence_of_another_process_before_it_is_durable() -> None:
    machine = Machine()
    for root in (STAGING, OUTPUT):
        machine.mkdir(root)
    machine.put(f"{STAGING}/f", b"data")
    machine.syncfs("/")
    old, new = own_store(machine), own_store(machine)
    old.create("s")
    new.create("s", "d")
    new.put("s", "d", FsRenameCommitStep(StepContext(SimulatedFileSystem(machine), STAGING, OUTPUT), "f", "a/f"))
    sealing: list[bool] = []

    def die(operation: Operation) -> None:
        if isinstance(written(machine, operation), Intent):
            sealing.append(True)
        elif sealing:
            raise Crashed

    machine.faults.append(die)
    with pytest.raises(Crashed):
        new.seal("s", "d")
    machine.restart()
    sequence = old.get_commit_sequence("s", "d")
    assert sequence is not None
    early: list[str] = []

    def check(after: SimulatedPosix, where: str) -> None:
        if dict(after.walk("/")).get(f"{OUTPUT}/a/f") and not own_store_at(after).exists("s", "d"):
            early.append(where)

    on_every_power_loss(machine, check)
    with suppress(FencedError):
        sequence.commit()
    assert published_by_steps(machine) == [f"{OUTPUT}/a/f"]
    assert early == []


def own_store_at(after: SimulatedPosix) -> LogCommitStepStore:
    fs = SimulatedFileSystem(after)
    return LogCommitStepStore(fs, "/job/stores", StepContext(fs, STAGING, OUTPUT), 2)


def published_by_steps(machine: Machine) -> list[str]:
    return sorted(machine.paths(OUTPUT))
