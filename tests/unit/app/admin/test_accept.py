"""Accepted sequences: the missing records are stored as skipped, and the audit still compares the rest."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from distcommit.app.admin.abandon_datasets import not_published
from distcommit.core.watermark import Watermark
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.operator.operator_actions import accept
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import ROOTS, World
from tests.unit.engine.driver.machines import OUTPUT, Machine, audit, dies_at, go, published, states

WORLD, TRIES_ONCE = World(), World(max_attempts=1)


def counting(end: int, incarnation: str = "one") -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": end}, units=2, incarnation=incarnation)})


def quarantined(*, published_files: int) -> Machine:
    """Quarantine the second run's sequence, of which `published_files` of two files are published and the others
    lost."""
    machine = Machine()
    assert go(WORLD, machine, counting(4)).succeeded
    remaining = [published_files]

    def dies(operation: Operation) -> None:
        if operation.kind.startswith("rename") and operation.path.startswith(f"{OUTPUT}/a/"):
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crashed

    machine.faults.append(dies)
    with suppress(Crashed):
        go(WORLD, machine, counting(10))
    machine.restart()
    for path in [path for path in machine.paths(ROOTS.staging) if path.endswith(".parquet")]:
        machine.remove(path)
    assert not go(TRIES_ONCE, machine, counting(10)).succeeded
    assert audit(WORLD, machine).pending == ["a (quarantined)"]
    return machine


def accept_sequence(machine: Machine) -> None:
    store = WORLD.store(machine)
    flow = TaskFlow.straight(counting(10), FileSink())
    accept(store, "a", "operator", not_published=partial(not_published, store, flow, "operator"))


@pytest.mark.parametrize(("published_files", "lost"), [(0, 6), (1, 3)])
def test_accepting_a_sequence_skips_its_missing_records_and_the_audit_still_reports_later_damage(
    published_files: int, lost: int
) -> None:
    machine = quarantined(published_files=published_files)
    accept_sequence(machine)
    assert states(WORLD, machine)["a"].watermark == Watermark({"0": 10}, "one")
    result = audit(WORLD, machine)
    assert (result.exact, result.gaps, result.skipped) == (True, 0, lost)
    assert "was accepted (operator)" in result.skipped_ranges[0]
    assert go(WORLD, machine, counting(12)).succeeded
    assert audit(WORLD, machine).exact
    for path in sorted(published(machine)):
        content = machine.read_file(path)
        machine.remove(path)
        damaged = audit(WORLD, machine)
        assert (damaged.exact, damaged.gaps > 0) == (False, True), path
        machine.put(path, content)
    assert audit(WORLD, machine).exact


def test_accept_command_killed_at_any_write_records_all_or_nothing() -> None:
    for number in range(60):
        machine = quarantined(published_files=1)
        machine.faults.append(dies_at(number))
        try:
            accept_sequence(machine)
        except Crashed:
            machine.restart()
        else:
            assert number > 0
            return
        state = states(WORLD, machine)["a"]
        assert bool(state.skipped) is (state.open is None), number
        if state.open is not None:
            accept_sequence(machine)
        assert (audit(WORLD, machine).exact, audit(WORLD, machine).skipped) == (True, 3), number
    raise AssertionError("the accept command never completed")
