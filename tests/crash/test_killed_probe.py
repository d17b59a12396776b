"""A committer that dies while it probes the output leaves no data and no permanent files."""

from __future__ import annotations

import errno
import random

import pytest

from distcommit.core.errors import SourceUnavailableError
from distcommit.engine.committing.drain import drain_partition
from distcommit.protocol.paths.temporary_and_probes import OUTPUT_PROBE, TEMPORARY
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import ROOTS, World
from tests.unit.engine.driver.machines import Machine, audit, begin_ingest, dies, fails, go, ingest_all, source

SOURCE = source(a=2, b=1)
WORLD = World()


def probes(machine: Machine) -> list[str]:
    return [path for root in (ROOTS.output, ROOTS.staging) for path in machine.paths(root) if OUTPUT_PROBE in path]


def dies_in_a_probe(machine: Machine, kind: str) -> None:
    """Let dataset `a` be unpublishable and the process die before that operation of its output probe."""
    machine.faults += [fails(errno.EACCES, "rename", f"{ROOTS.output}/a"), dies(kind, OUTPUT_PROBE)]


@pytest.mark.parametrize("name", [f"{OUTPUT_PROBE}0", f"{TEMPORARY}{OUTPUT_PROBE}0-{'0' * 32}"])
def test_probe_file_in_the_output_is_not_an_unknown_file(name: str) -> None:
    machine = Machine()
    go(WORLD, machine, SOURCE)
    machine.put(f"{ROOTS.output}/{name}", b"")
    assert audit(WORLD, machine).exact


@pytest.mark.parametrize("kind", ["fsync", "rename", "unlink"])
def test_next_run_deletes_the_file_of_a_crashed_probe(kind: str) -> None:
    machine = Machine()
    WORLD.store(machine)
    dies_in_a_probe(machine, kind)
    with pytest.raises(Crashed):
        go(WORLD, machine, SOURCE)
    machine.restart()
    assert len(probes(machine)) == 1
    another = f"{ROOTS.output}/{OUTPUT_PROBE}01"
    machine.put(another, b"")
    assert go(WORLD, machine, SOURCE).succeeded
    assert probes(machine) == [another], "the probe of another bucket's committer, which may be alive"
    machine.remove(another)
    assert WORLD.violation(machine, SOURCE, {}) == ""


@pytest.mark.parametrize("kind", ["rename", "unlink"])
def test_second_drain_attempt_deletes_the_probe_file_of_the_first(kind: str) -> None:
    machine = Machine()
    settings, tasks = begin_ingest(WORLD, machine, SOURCE)
    dies_in_a_probe(machine, kind)
    ingest_all(settings, tasks)
    assert probes(machine) == [], "an ingest task does not probe"
    record_ingest_ended(settings.store.fs, ROOTS.store, settings.run_id)
    with pytest.raises(Crashed):
        drain_partition(settings, 0)
    machine.restart()
    assert len(probes(machine)) == 1
    assert drain_partition(settings, 0).counts.datasets_published == 2
    assert probes(machine) == []


def test_output_that_cannot_be_listed_does_not_prevent_replay() -> None:
    machine = Machine()
    WORLD.store(machine)
    dies_in_a_probe(machine, "unlink")
    with pytest.raises(Crashed):
        go(WORLD, machine, SOURCE)
    machine.restart()
    machine.faults.append(fails(errno.EACCES, "scandir", ROOTS.output))
    assert go(WORLD, machine, SOURCE).succeeded
    assert len(probes(machine)) == 1


def test_deleted_probe_file_does_not_return_after_a_power_loss() -> None:
    """The run drops held sequences, which triggers the search for probe files. It publishes nothing afterwards, which
    would sync the same folders.
    """
    world, machine = World(job_level=True), Machine()
    settings, tasks = begin_ingest(world, machine, SOURCE)
    ingest_all(settings, tasks)
    record_ingest_ended(settings.store.fs, ROOTS.store, settings.run_id)
    assert drain_partition(settings, 0).counts.datasets_held == 2
    for root in (ROOTS.output, ROOTS.staging):
        machine.put(f"{root}/{OUTPUT_PROBE}0-{'0' * 32}", b"")
    machine.syncfs("/")
    with pytest.raises(SourceUnavailableError):
        go(world, machine, ModelSource(SOURCE.datasets, refuses="plan"))
    assert probes(machine) == []
    survivors = list(machine.after_power_loss(random.Random(1), 5, 6))
    assert len(survivors) > 1
    for survivor in survivors:
        assert [path for _, path, _ in survivor.files() if OUTPUT_PROBE in path] == []


def test_run_without_leftover_sequences_does_not_list_the_output() -> None:
    machine = Machine()
    go(WORLD, machine, SOURCE)
    machine.made.clear()
    assert go(WORLD, machine, source(a=3, b=4)).succeeded
    assert [o for o in machine.made if (o.kind, o.path) == ("scandir", ROOTS.output)] == []
