"""What people do by hand with quarantined datasets and watermarks, wherever they or the machine die."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from distcommit.core.errors import ConflictError, DistcommitError
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.records.log_records import DatasetStatus, SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.steps.registry import load_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS
from tests.unit.engine.committing.situations import WORLD, check_recovery, quarantine, quarantined
from tests.unit.engine.driver.machines import (
    OUTPUT,
    STAGING,
    EagerSource,
    Machine,
    Meeting,
    dies,
    fails,
    go,
    on_every_power_loss,
    published,
    source,
    states,
    statuses,
    with_folders,
)


def test_a_zombie_can_not_publish_what_a_person_abandons_wherever_they_meet() -> None:
    data = source(a=3, b=1)
    for number in range(100):
        machine = Machine()
        sequence = quarantined(machine, data)
        store = WORLD.store(machine)
        steps = list(load_steps(sequence.steps, StepContext(store.fs, ROOTS.staging, ROOTS.output)))

        def zombie(steps: list = steps) -> bool:  # type: ignore[type-arg]
            for step in steps:
                with suppress(DistcommitError):
                    step.execute()
            return True

        meeting = Meeting(machine, number, zombie)
        machine.faults.append(meeting)
        operator_actions.abandon(store, "a", "person")
        machine.restart()
        zombie()
        assert not [path for path in published(machine) if path.startswith(OUTPUT + "/a/")], number
        assert statuses(WORLD, machine)["a"] == "idle"
        if meeting.result is None:
            break
    assert number > 5
    check_recovery(machine, data)


@pytest.mark.parametrize("status", [DatasetStatus.QUARANTINED, DatasetStatus.REVOKING])
def test_a_dataset_that_a_person_must_look_at_is_not_read_again_though_its_source_plans_it(
    status: DatasetStatus,
) -> None:
    machine = Machine()
    quarantined(machine, source(a=3, b=1))
    if status is DatasetStatus.REVOKING:
        machine.faults.append(fails(errno.EIO, "unlink", "/job/staging/"))
        with pytest.raises(DistcommitError):
            operator_actions.abandon(WORLD.store(machine), "a", "person")
        machine.restart()
    assert states(WORLD, machine)["a"].status is status
    result = go(WORLD, machine, EagerSource(source(a=9, b=2).datasets))
    assert (result.totals.datasets_planned, result.totals.records_read) == (1, 1)
    assert states(WORLD, machine)["a"].status is status


def half_published_then_quarantined(machine: Machine) -> SealedSequence:
    """Dataset `a` with one file published and one staged, both durable."""
    WORLD.store(machine)
    with_folders(machine, "a").faults.append(dies("rename", OUTPUT + "/a/", nth=2))
    with suppress(Crashed):
        go(WORLD, machine, source(a=[2, 2]))
    machine.restart()
    sequence = quarantine(machine)
    machine.syncfs("/")
    assert len(published(machine)) == 1
    assert len(machine.paths(STAGING)) == 1
    return sequence


@pytest.mark.parametrize("first_person_died", [False, True])
def test_whenever_power_is_lost_while_a_sequence_is_abandoned_none_of_it_is_half_there_unnoticed(
    first_person_died: bool,
) -> None:
    machine = Machine()
    sequence = half_published_then_quarantined(machine)
    if first_person_died:
        machine.faults.append(dies("fsync_folder", "/store/log/bucket=", 2))  # the first is before the put
        with suppress(Crashed):
            operator_actions.abandon(WORLD.store(machine), "a", "person")
        machine.restart()
        assert statuses(WORLD, machine)["a"] == "revoking"
    left: list[SimulatedPosix] = []
    on_every_power_loss(machine, lambda after, where: left.append(after))
    operator_actions.abandon(WORLD.store(machine), "a", "person")
    machine.mkdir("/end")  # a last look
    ended = 0
    for after in left:
        store = WORLD.store(after)
        state = store.bucket_log(0).refresh().state_of("a")
        context = StepContext(store.fs, STAGING, OUTPUT)
        steps = [step for step in load_steps(sequence.steps, context) if isinstance(step, FsRenameCommitStep)]
        there = sum(1 for step in steps for path in (step.source, step.target) if store.fs.status(path) is not None)
        ended += state.sequence is None
        assert there == 2 or state.status is not DatasetStatus.QUARANTINED
        assert there == 0 or state.sequence is not None
        assert state.watermark is None
    assert ended > 0
    durable = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert WORLD.store(durable).bucket_log(0).refresh().state_of("a").sequence is None
    check_recovery(machine, source(a=[2, 2]))


def test_what_a_person_retries_is_published_by_the_next_run_and_what_is_accepted_is_not_read_again() -> None:
    machine, data = Machine(), source(a=3, b=1)
    quarantined(machine, data)
    operator_actions.retry(WORLD.store(machine), "a", "person")
    check_recovery(machine, data)
    machine = Machine()
    sequence = quarantined(machine, data)
    operator_actions.accept(WORLD.store(machine), "a", "person")
    state = states(WORLD, machine)["a"]
    assert (state.status, state.watermark, state.accepted_epochs) == (
        DatasetStatus.IDLE,
        sequence.high,
        (sequence.epoch,),
    )
    assert go(WORLD, machine, data).totals.records_read == 0


@pytest.mark.parametrize("command", [operator_actions.abandon, operator_actions.accept])
def test_what_another_person_retries_meanwhile_and_a_run_publishes_is_left_alone(command: Callable[..., None]) -> None:
    data, left_alone = source(a=3, b=1), 0
    for number in range(100):
        machine = Machine()
        quarantined(machine, data)

        def other(machine: Machine = machine) -> bool:
            with suppress(ConflictError):
                operator_actions.retry(WORLD.store(machine), "a", "another person")
                return go(WORLD, machine, data).succeeded
            return False

        meeting = Meeting(machine, number, other)
        machine.faults.append(meeting)
        try:
            command(WORLD.store(machine), "a", "person")
        except ConflictError:
            left_alone += 1
            assert meeting.result
        else:
            assert not meeting.result, f"nobody is told that the other was first, at {number}"
        machine.restart()
        if command is operator_actions.abandon or meeting.result:
            check_recovery(machine, data)
        if meeting.result is None:
            break
    assert left_alone > 1
    assert number > left_alone


def test_a_watermark_that_another_person_died_in_setting_is_durable_once_it_was_set_again() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(a=3)).succeeded
    machine.syncfs("/")
    machine.faults.append(dies("fsync_folder", "/store/log/bucket=", 2))  # the first is before the put
    with suppress(Crashed):
        operator_actions.set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "one")
    machine.restart()
    operator_actions.set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "two")
    durable = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert WORLD.watermarks(durable) == {"a": Watermark({"0": 1})}


def test_a_watermark_that_is_set_to_what_it_is_is_set_once() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(a=3)).succeeded
    written = []

    def counted(operation: Operation) -> None:
        if operation.kind == "rename":
            written.append(operation.path)
            if len(written) > 20:
                raise Crashed

    machine.faults.append(counted)
    with suppress(Crashed):
        for _ in range(3):
            operator_actions.set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "person")
    assert len(written) <= 3


def test_watermarks_of_many_datasets_are_set_as_a_person_saw_them_or_not_at_all() -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    store, new = WORLD.store(machine), Watermark({"0": 5})
    wanted = {"a": new, "b": new}
    operator_actions.set_watermarks(store, wanted, {"a": None, "b": None}, "person")
    assert WORLD.watermarks(machine) == wanted
    newer = {"a": Watermark({"0": 7}), "b": Watermark({"0": 7})}
    with pytest.raises(ConflictError):
        operator_actions.set_watermarks(store, newer, {"a": new, "b": None}, "person")
    assert WORLD.watermarks(machine) == wanted


def test_what_can_not_be_done_to_a_dataset_is_told_with_its_watermark_as_status_has_it() -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    store = WORLD.store(machine)
    wanted = {
        "new": (None, "none"),
        "offsets": (Watermark({"0": 1_200, "1": 34}, "a topic's id"), "1,234"),
        "files": (Watermark({"": (1, 0, "a.jsonl")}), '[1,0,"a.jsonl"]'),
    }
    for urn, (watermark, told) in wanted.items():
        if watermark is not None:
            operator_actions.set_watermark(store, urn, watermark, "person")
        with pytest.raises(ConflictError) as raised:
            operator_actions.retry(store, urn, "person")
        assert f"watermark {told}" in str(raised.value)
        assert "Watermark(" not in str(raised.value)
