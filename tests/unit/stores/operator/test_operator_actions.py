"""Operator actions on quarantined datasets and watermarks, with kills and power losses at any point."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from distcommit.core.errors import ConflictError, DistcommitError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import load_steps
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


@pytest.mark.thorough
def test_zombie_cannot_publish_an_abandoned_sequence_whenever_it_acts() -> None:
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
def test_quarantined_or_revoking_dataset_is_not_read_again_although_its_source_plans_it(
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
    """Publish one file of dataset `a` and leave one staged, both durable, and quarantine the dataset."""
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


@pytest.mark.parametrize("first_command_died", [False, True])
def test_power_loss_during_abandon_never_leaves_a_partly_deleted_quarantined_sequence(
    first_command_died: bool,
) -> None:
    machine = Machine()
    sequence = half_published_then_quarantined(machine)
    if first_command_died:
        machine.faults.append(dies("fsync_folder", "/store/log/bucket=", 2))  # the first sync precedes the put
        with suppress(Crashed):
            operator_actions.abandon(WORLD.store(machine), "a", "person")
        machine.restart()
        assert statuses(WORLD, machine)["a"] == "revoking"
    survivors: list[SimulatedPosix] = []
    on_every_power_loss(machine, lambda after, where: survivors.append(after))
    operator_actions.abandon(WORLD.store(machine), "a", "person")
    machine.mkdir("/end")  # a last power loss
    ended = 0
    for after in survivors:
        store = WORLD.store(after)
        state = store.bucket_log(0).refresh().state_of("a")
        context = StepContext(store.fs, STAGING, OUTPUT)
        steps = [step for step in load_steps(sequence.steps, context) if isinstance(step, FsRenameCommitStep)]
        present = sum(1 for step in steps for path in (step.source, step.target) if store.fs.status(path) is not None)
        ended += state.sequence is None
        assert present == 2 or state.status is not DatasetStatus.QUARANTINED
        assert present == 0 or state.sequence is not None
        assert state.watermark is None
    assert ended > 0
    durable = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert WORLD.store(durable).bucket_log(0).refresh().state_of("a").sequence is None
    check_recovery(machine, source(a=[2, 2]))


def test_retried_sequence_is_published_by_the_next_run_and_an_accepted_one_is_not_read_again() -> None:
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


@pytest.mark.thorough
@pytest.mark.parametrize("command", [operator_actions.abandon, operator_actions.accept])
def test_abandon_and_accept_are_refused_if_a_concurrent_retry_was_published(command: Callable[..., None]) -> None:
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
            assert not meeting.result, f"the second command must be refused, at {number}"
        machine.restart()
        if command is operator_actions.abandon or meeting.result:
            check_recovery(machine, data)
        if meeting.result is None:
            break
    assert left_alone > 1
    assert number > left_alone


def test_watermark_whose_command_died_is_durable_once_it_is_set_again() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(a=3)).succeeded
    machine.syncfs("/")
    machine.faults.append(dies("fsync_folder", "/store/log/bucket=", 2))  # the first sync precedes the put
    with suppress(Crashed):
        operator_actions.set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "one")
    machine.restart()
    operator_actions.set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "two")
    durable = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert WORLD.watermarks(durable) == {"a": Watermark({"0": 1})}


def test_setting_a_watermark_to_its_current_value_writes_only_once() -> None:
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


def test_watermarks_of_many_datasets_are_set_only_if_none_changed_meanwhile() -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    store, new = WORLD.store(machine), Watermark({"0": 5})
    requested = {"a": new, "b": new}
    operator_actions.set_watermarks(store, requested, {"a": None, "b": None}, "person")
    assert WORLD.watermarks(machine) == requested
    newer = {"a": Watermark({"0": 7}), "b": Watermark({"0": 7})}
    with pytest.raises(ConflictError):
        operator_actions.set_watermarks(store, newer, {"a": new, "b": None}, "person")
    assert WORLD.watermarks(machine) == requested


def test_refused_operator_action_shows_the_watermark_in_the_form_of_status() -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    store = WORLD.store(machine)
    requested = {
        "new": (None, "none"),
        "offsets": (Watermark({"0": 1_200, "1": 34}, "a topic's id"), "1,234"),
        "files": (Watermark({"": (1, 0, "a.jsonl")}), '[1,0,"a.jsonl"]'),
    }
    for urn, (watermark, shown) in requested.items():
        if watermark is not None:
            operator_actions.set_watermark(store, urn, watermark, "person")
        with pytest.raises(ConflictError) as raised:
            operator_actions.retry(store, urn, "person")
        assert f"watermark {shown}" in str(raised.value)
        assert "Watermark(" not in str(raised.value)
