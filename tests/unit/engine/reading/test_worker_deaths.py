"""A work unit that kills its worker is read alone and then recorded as failed; all other datasets are published in the
same run."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from distcommit.app.inspection.job_status import read_status
from distcommit.core.error_handling.error_text_classification import is_outage, is_worker_death
from distcommit.core.errors import ProcessLostError, SourceUnavailableError
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.launch_interface import Result
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.reading import worker_deaths
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.store import READING
from distcommit.stores.logs.fencing import end_run
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource, WorkerKilled
from tests.models.dying_workers import DyingLaunch
from tests.simulation.world import ROOTS, World
from tests.unit.engine.driver.machines import Machine, OddSource, audit, fails, go, source, states

WORLD = World(buckets=2, partitions=1)
DATA = source(a=2, b=1, c=3, d=1, e=2)


def killing(*urns: str, times: int = 1_000_000) -> ModelSource:
    """Build the source whose datasets of these names kill their worker, so many times."""
    remaining = dict.fromkeys(urns, times)

    def extract(unit: WorkUnit) -> None:
        if remaining.get(unit.dataset_urn, 0) > 0:
            remaining[unit.dataset_urn] -= 1
            raise WorkerKilled

    return OddSource(DATA.datasets, extracting=extract)


def run_dying(
    machine: Machine, data: ModelSource, attempts: int = 1, world: World = WORLD
) -> tuple[RunResult, DyingLaunch]:
    """Run the job once on Spark whose workers die."""
    launch, settings = DyingLaunch(attempts), world.begin(machine, data)
    with recorded_run(settings, "run", "somebody") as observer:
        result = run(launch, settings, observer=observer)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
    return result, launch


class DriverKilled(BaseException):
    """The death of all processes of a run."""


def die_whole(machine: Machine, data: ModelSource) -> None:
    """Run the job once; the driver dies with the first worker."""

    def launch(
        function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        try:
            return DyingLaunch()(function, settings, tasks, kind)
        except ProcessLostError as error:
            raise DriverKilled from error

    with suppress(DriverKilled):
        run(launch, WORLD.begin(machine, data))


def notes(machine: Machine) -> list[str]:
    return list(machine.paths(f"{ROOTS.store}/{READING}"))


@pytest.mark.parametrize("attempts", [1, 2, 4])
@pytest.mark.parametrize("killers", [["a"], ["c"], ["a", "c"], ["a", "b", "c", "d", "e"]])
def test_killers_fail_alone_and_all_other_datasets_are_published_in_the_same_run(
    attempts: int, killers: list[str]
) -> None:
    machine = Machine()
    result, launch = run_dying(machine, killing(*killers), attempts)
    assert result.totals.datasets_published == len(DATA.datasets) - len(killers)
    assert (result.succeeded, result.error) == (False, "")
    assert sorted({reason.subject for reason in result.reasons.entries}) == killers
    for reason in result.reasons.entries:
        assert is_worker_death(reason.text), reason.text
        assert f"dataset={reason.subject}, work_unit=" in reason.text
        assert "partition '0' from 0 to " in reason.text
    assert len(set(launch.read_alone)) >= len(killers)
    assert audit(WORLD, machine).duplicates == audit(WORLD, machine).gaps == 0
    assert go(WORLD, machine, DATA).succeeded
    assert audit(WORLD, machine).exact
    assert notes(machine) == []


@pytest.mark.parametrize("attempts", [1, 4])
def test_worker_that_dies_once_costs_nothing_but_another_attempt(attempts: int) -> None:
    machine = Machine()
    result, _ = run_dying(machine, killing("a", times=1), attempts)
    assert result.succeeded, result
    assert audit(WORLD, machine).exact
    assert notes(machine) == []


@pytest.mark.parametrize("attempts", [1, 4])
def test_innocent_suspect_is_read_alone_and_published(attempts: int) -> None:
    """The worker dies twice with the same work unit in hand, for a cause that is not the work unit."""
    machine = Machine()
    result, launch = run_dying(machine, killing("a", times=2), attempts)
    assert result.succeeded, result
    assert len(launch.read_alone) == 1
    assert audit(WORLD, machine).exact
    assert notes(machine) == []


@pytest.mark.parametrize("is_read_meanwhile", [False, True])
def test_work_unit_is_read_if_the_attempt_for_which_it_was_left_out_fails_because_of_its_node(
    monkeypatch: pytest.MonkeyPatch, *, is_read_meanwhile: bool
) -> None:
    """A task leaves out the work unit of an attempt on a bad node. The attempt fails later, and deletes its marker."""
    machine, launched = Machine(), list[str]()
    settings = WORLD.begin(machine, DATA)

    def launch(
        function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        launched.append(function.__name__)
        if launched.count("ingest_partition") > 1 or function.__name__ != "ingest_partition":
            return go_through(function, settings, tasks)
        with monkeypatch.context() as patched:
            patched.setattr(worker_deaths, "without_suspects", without_a)
            results = go_through(function, replace(settings, after_death=True), tasks)
        if is_read_meanwhile:
            go_through(function, settings, tasks)
        return results

    result = run(launch, settings)
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    assert (result.succeeded, result.totals.datasets_published) == (True, 5), result
    assert launched.count("ingest_partition") == 2
    assert audit(WORLD, machine).exact


def without_a(_: RunSettings, units: Sequence[WorkUnit]) -> list[WorkUnit]:
    return [unit for unit in units if unit.dataset_urn != "a"]


def go_through(function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int) -> list[Result]:
    return [function(settings, task) for task in range(tasks)]


def test_known_killer_is_read_alone_from_the_start_of_the_next_run() -> None:
    machine = Machine()
    run_dying(machine, killing("a"))
    result, launch = run_dying(machine, killing("a"))
    assert launch.launched.count("ingest_partition") == 1, "no task died of it"
    assert launch.launched.count("read_suspect") == 2, "it dies, and the second launch records that"
    assert [reason.subject for reason in result.reasons.entries] == ["a"]


def test_failed_runs_of_a_killer_count_until_the_dataset_is_stopped() -> None:
    world = World(buckets=2, partitions=1, stop_after_failed_runs=2)
    machine = Machine()
    for failed_runs in (1, 2):
        run_dying(machine, killing("a"), world=world)
        state = states(world, machine)["a"]
        assert state.read_failure is not None
        assert state.read_failure.failed_runs == failed_runs
        assert not is_outage(state.read_failure.reason)
    assert states(world, machine)["a"].is_stopped
    _, launch = run_dying(machine, killing("a"), world=world)
    assert launch.read_alone == []


def test_problem_names_dataset_work_unit_and_positions() -> None:
    machine = Machine()
    run_dying(machine, killing("c"))
    row = next(row for row in read_status(WORLD.store(machine)).datasets if row.dataset == "c")
    assert "dataset=c, work_unit=0000" in row.reason
    assert "partition '0' from 0 to 3" in row.reason


@pytest.mark.parametrize("_", range(4))
def test_work_unit_that_kills_the_whole_run_is_failed_by_a_later_run(_: int) -> None:
    """All processes of a run die at once, as in a container that is killed. The run after it notes what it reads, the
    next one reads the suspect alone, and the one after that records its failure and publishes all others. Names of
    notes are random.
    """
    machine, data = Machine(), killing("a")
    for _ in range(3):
        die_whole(machine, data)
    result, launch = run_dying(machine, data)
    assert launch.launched.count("read_suspect") == 1, "its failure is recorded, and it is not read"
    assert launch.launched.count("ingest_partition") == 1
    assert [reason.subject for reason in result.reasons.entries] == ["a"]
    assert is_worker_death(result.reasons.entries[0].text)
    assert result.totals.datasets_published + audit(WORLD, machine).datasets >= len(DATA.datasets) - 1
    assert go(WORLD, machine, DATA).succeeded
    assert audit(WORLD, machine).exact


@pytest.mark.parametrize("first", [DATA, source(a=1), ModelSource(DATA.datasets, refuses="plan")])
def test_run_after_one_that_ended_notes_nothing(first: ModelSource) -> None:
    machine = Machine()
    with suppress(SourceUnavailableError):
        go(WORLD, machine, first)
    machine.made.clear()
    go(WORLD, machine, source(a=4, b=1, c=3, d=1, e=2))
    assert not [operation for operation in machine.made if f"/{READING}/" in operation.path]


def test_unwritable_note_fails_the_attempt_and_no_work_unit_is_read_without_one() -> None:
    machine = Machine()
    die_whole(machine, killing("a"))

    machine.faults.append(fails(errno.ENOSPC, "create", f"/{READING}/"))
    result = go(WORLD, machine, DATA)
    assert not result.succeeded
    machine.restart()
    assert go(WORLD, machine, DATA).succeeded
    assert audit(WORLD, machine).exact


def whole_deaths_until_the_end(machine: Machine, data: ModelSource) -> int:
    """Run the job until a run ends; the driver dies with each worker. Return how many runs died."""

    def launch(
        function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        try:
            return DyingLaunch()(function, settings, tasks, kind)
        except ProcessLostError as error:
            raise DriverKilled from error

    for deaths in range(20):
        settings = WORLD.begin(machine, data)
        try:
            with recorded_run(settings, "run", "somebody") as observer:
                result = run(launch, settings, observer=observer)
        except DriverKilled:
            continue
        end_run(settings.store, settings.epoch, clean=result.succeeded)
        return deaths
    raise AssertionError("no run ends")


@pytest.mark.parametrize(("killers", "most"), [("a", 3), ("ab", 6), ("abc", 9), ("abcde", 15)])
def test_killers_of_whole_runs_cost_a_few_runs_each(killers: str, most: int) -> None:
    machine = Machine()
    assert whole_deaths_until_the_end(machine, killing(*killers)) <= most
    reasons = {urn: state.read_failure for urn, state in states(WORLD, machine).items() if state.read_failure}
    assert sorted(reasons) == list(killers)
    assert go(WORLD, machine, DATA).succeeded
    assert audit(WORLD, machine).exact


def test_only_the_work_unit_with_the_positions_is_read_alone_in_the_next_run() -> None:
    data = ModelSource({"a": ModelDataset({"0": 9}, units=3), "b": ModelDataset({"0": 1})})

    def extract(unit: WorkUnit) -> None:
        if unit.low.positions == {"0": 3}:
            raise WorkerKilled

    machine, source_of = Machine(), OddSource(data.datasets, extracting=extract)
    run_dying(machine, source_of)
    result, launch = run_dying(machine, source_of)
    assert len(set(launch.read_alone)) == 1
    assert "partition '0' from 3 to 6" in result.reasons.entries[0].text
    assert go(WORLD, machine, data).succeeded
    assert audit(WORLD, machine).exact


def test_suspect_whose_worker_dies_once_more_is_read_by_spark_s_next_attempt() -> None:
    """A slow attempt beside a speculative one, or a lost node, is no proof."""
    machine = Machine()
    result, launch = run_dying(machine, killing("a", times=3), attempts=4)
    assert result.succeeded, result
    assert launch.launched.count("read_suspect") == 1
    assert audit(WORLD, machine).exact


def test_suspect_is_diagnosed_although_the_time_to_read_is_over() -> None:
    machine, launch = Machine(), DyingLaunch()
    settings = WORLD.begin(machine, killing("a"))
    result = run(launch, settings, max_seconds=0.000001)
    assert "a" not in {reason.subject for reason in result.reasons.entries} or launch.read_alone
    machine = Machine()
    die_whole(machine, killing("a"))
    die_whole(machine, killing("a"))
    late = DyingLaunch()
    result = run(late, WORLD.begin(machine, killing("a")), max_seconds=0.000001)
    assert late.read_alone
    assert [reason.subject for reason in result.reasons.entries] == ["a"]


def test_unreadable_notes_do_not_keep_other_datasets_from_being_read() -> None:
    machine = Machine()
    die_whole(machine, killing("a"))
    die_whole(machine, killing("a"))
    machine.faults.append(fails(errno.EIO, "scandir", f"/{READING}"))
    result, _ = run_dying(machine, killing("a"))
    assert result.totals.datasets_published + len(states(WORLD, machine)) > 0
    machine.restart()
    assert go(WORLD, machine, DATA).succeeded
    assert audit(WORLD, machine).exact
