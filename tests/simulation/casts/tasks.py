"""Casts for the interleaver: tasks of runs beside their twins, their drain and the tasks of newer runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from distcommit.core.support.io_batching import run_alone
from distcommit.engine.committing.drain import drain_partition, publish_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.run import decide_run, run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.planning.plan_partition import plan_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.model_flow import model_flow
from tests.simulation.casts.branches import violation_of_branches
from tests.simulation.casts.parts import (
    SOURCE,
    WORLD,
    Act,
    Cast,
    Scene,
    drains,
    finishes,
    in_turn,
    ingests,
    new_run,
    on,
    runs,
)
from tests.simulation.programs.parts import killed_before_drain
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World, launch_here

_AT_LEAST_ONCE = World(at_least_once=True)
_TWO_PARTITIONS = World(buckets=3, partitions=2)
_ONE_SWEEP = World(buckets=3, partitions=2, min_interval_s=1)
_WHOLE_JOB = World(buckets=2, partitions=2, job_level=True)
_MANY_AT_LEAST_ONCE = World(buckets=3, partitions=2, at_least_once=True)
_ON_HDFS = World(buckets=2, partitions=2, on_hdfs=True)
_LATE_S = 1_000_000
_SPREAD = ModelSource({"a": ModelDataset({"0": 2}, units=2), "b": ModelDataset({"0": 2}), "c": ModelDataset({"0": 1})})


def _twins(machine: SimulatedPosix, world: World = WORLD) -> Mapping[str, Act]:
    settings = new_run(machine, world)
    return {"owner": ingests(settings), "twin": ingests(settings)}


def _unlike_twins(machine: SimulatedPosix) -> Mapping[str, Act]:
    """Twins of which each reads less of one dataset: whichever wins, no record is skipped. They commit after reading
    all."""
    settings = replace(new_run(machine), min_interval_s=_LATE_S)

    def reads_less_of(urn: str) -> RunSettings:
        source = ModelSource({**SOURCE.datasets, urn: replace(SOURCE.datasets[urn], short=1)})
        return replace(settings, flow=replace(settings.flow, source=source))

    return {"owner": ingests(reads_less_of("a")), "twin": ingests(reads_less_of("b"))}


def _twins_at_least_once(machine: SimulatedPosix) -> Mapping[str, Act]:
    settings = new_run(machine, _AT_LEAST_ONCE)
    return {"owner": ingests(settings), "twin": ingests(settings), "drain": finishes(settings)}


def _zombie(machine: SimulatedPosix, world: World = WORLD) -> Mapping[str, Act]:
    return {"zombie": finishes(new_run(machine, world)), "run": runs()}


def _keeps(store: JobStore, scene: Scene) -> None:
    """Write checkpoints and truncate, repeatedly."""
    for _ in range(3):
        for log in (store.bucket_log(0), store.job_log()):
            run_alone(log.checkpoint(at_least=1))


def _twins_and_keeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {**_twins(machine), "keeper": _keeps}


def _zombie_and_keeper(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {**_zombie(machine), "keeper": _keeps}


def _two_drivers(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"one": runs(), "two": runs()}


def _twins_and_drains(machine: SimulatedPosix, world: World) -> Mapping[str, Act]:
    """Speculative twins of every ingest task are alive as the drain begins, which has twins, too."""
    settings = new_run(machine, world, _SPREAD)
    forth, back = range(world.partitions), reversed(range(world.partitions))
    return {
        "owner": ingests(settings, *forth),
        "twin": ingests(settings, *back),
        "drain": drains(settings, *forth),
        "drain-twin": drains(settings, *back),
    }


def _decides(settings: RunSettings) -> Act:
    """Drain, decide if all is sealed, and publish, as the driver of a `scope: job` job."""

    def act(store: JobStore, scene: Scene) -> None:
        own_settings, tasks = on(settings, store), range(settings.partitions)
        record_ingest_ended(store.fs, store.roots.store, settings.run_id)
        reports = [drain_partition(own_settings, partition) for partition in tasks]
        complete = sum(report.counts.datasets_sealed for report in reports) == len(_SPREAD.datasets)
        complete = complete and not any(report.reasons or report.fenced for report in reports)
        if complete and decide_run(store, settings.epoch):
            for partition in tasks:
                publish_partition(own_settings, partition)

    return act


def _publishes(settings: RunSettings) -> Act:
    """Run a twin of the last Spark job of a run, which begins once the driver has decided or as if it had."""

    def act(store: JobStore, scene: Scene) -> None:
        if settings.epoch in store.job_log().refresh().decided_epochs:
            for partition in reversed(range(settings.partitions)):
                publish_partition(on(settings, store), partition)

    return act


def _ingests_and_decides(settings: RunSettings) -> Act:
    return in_turn(ingests(settings), _decides(settings))


def _whole_job(machine: SimulatedPosix) -> Mapping[str, Act]:
    settings = new_run(machine, _WHOLE_JOB, _SPREAD)
    return {"driver": _ingests_and_decides(settings), "twin": ingests(settings), "publisher": _publishes(settings)}


def _zombie_of_whole_job(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A driver decides, or does not, while a newer run recovers and drops undecided sequences."""
    return {
        "zombie": _ingests_and_decides(new_run(machine, _WHOLE_JOB, _SPREAD)),
        "run": runs(_WHOLE_JOB, _SPREAD),
    }


def _late_decision(machine: SimulatedPosix) -> Mapping[str, Act]:
    """All is sealed; a driver is about to decide, and a publisher waits for that, as a newer run begins."""
    settings = new_run(machine, _WHOLE_JOB, _SPREAD)
    ingests(settings)(settings.store, Scene())
    drains(settings)(settings.store, Scene())
    return {"driver": _decides(settings), "publisher": _publishes(settings), "run": runs(_WHOLE_JOB, _SPREAD)}


def _late_twins(machine: SimulatedPosix) -> Mapping[str, Act]:
    """Late twins of a run's recovery and planning tasks come while its datasets are read and published."""
    settings = new_run(machine)

    def recovers(store: JobStore, scene: Scene) -> None:
        recover_partition(on(settings, store), 0)

    def plans(store: JobStore, scene: Scene) -> None:
        plan_partition(on(settings, store), 0)

    return {"run": finishes(settings), "recover-twin": recovers, "plan-twin": plans}


def _second_attempts(machine: SimulatedPosix) -> Mapping[str, Act]:
    """An attempt at a task is given up and lives on, while a second one takes over, and then the drain."""
    settings = new_run(machine, _TWO_PARTITIONS, _SPREAD)

    return {"first": ingests(settings), "second": finishes(settings)}


_PARTIAL = World(policy=CommitPolicy.PARTIAL)
_PARTIAL_FORKS = replace(_PARTIAL, flow=model_flow)
_LONG = ModelSource({"a": ModelDataset({"0": 4, "1": 2}), "b": ModelDataset({"0": 2})})


def _prefixes(machine: SimulatedPosix, world: World = _PARTIAL) -> Mapping[str, Act]:
    """Attempts fail in different places, one succeeds, and drains begin meanwhile: whichever wins, each record is
    published once."""
    settings = new_run(machine, world, _LONG)

    def stumbles(**bad: int) -> Act:
        dataset = replace(_LONG.datasets["a"], bad={name.removeprefix("p"): at for name, at in bad.items()})
        source = ModelSource({**_LONG.datasets, "a": dataset})
        return ingests(replace(settings, flow=settings.flow.with_source(source)))

    return {
        "owner": stumbles(p0=1, p1=1),
        "twin": stumbles(p0=3),
        "late": ingests(settings),
        "drain": drains(settings),
        "drain-twin": drains(settings),
    }


_RESUMED = World(policy=CommitPolicy.SUCCESSFUL, resume_across_runs=True)
_IN_UNITS = ModelSource({"a": ModelDataset({"0": 4}, units=2), "b": ModelDataset({"0": 2})})
_STOPPED = ModelSource({"a": ModelDataset({"0": 4}, units=2, bad={"0": 1}), "b": ModelDataset({"0": 2})})


def _resumed(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A run resumes a killed one, whose tasks still write, beside a late attempt at its own recovery."""
    killed = killed_before_drain(machine, _RESUMED, _STOPPED)
    flow = replace(killed.flow, source=_IN_UNITS)
    settings = _RESUMED.begin(machine, _IN_UNITS)

    def resumes(store: JobStore, scene: Scene) -> None:
        own_settings = on(settings, store)
        with recorded_run(own_settings, "run", "world") as observer:
            result = run(launch_here, own_settings, observer=observer)
            end_run(store, settings.epoch, clean=result.succeeded)

    def recovers(store: JobStore, scene: Scene) -> None:
        recover_partition(on(settings, store), 0)

    return {"run": resumes, "recover-twin": recovers, "zombie": finishes(replace(killed, flow=flow))}


def _spread(name: str, world: World) -> Cast:
    return Cast(name, partial(_twins_and_drains, world=world), world=world, source=_SPREAD)


TASKS = (
    Cast("twins", _twins),
    Cast("twins-keeper", _twins_and_keeper),
    Cast("unlike-twins", _unlike_twins),
    Cast("twins-at-least-once", _twins_at_least_once, world=_AT_LEAST_ONCE),
    Cast("zombie", _zombie),
    Cast("zombie-at-least-once", partial(_zombie, world=_AT_LEAST_ONCE), world=_AT_LEAST_ONCE),
    Cast("zombie-keeper", _zombie_and_keeper),
    Cast("two-drivers", _two_drivers),
    _spread("drains", WORLD),
    _spread("drains-of-two", _TWO_PARTITIONS),
    _spread("drains-in-step", _ONE_SWEEP),
    _spread("drains-at-least-once", _MANY_AT_LEAST_ONCE),
    _spread("drains-on-hdfs", _ON_HDFS),
    Cast("whole-job", _whole_job, world=_WHOLE_JOB, source=_SPREAD),
    Cast("zombie-of-whole-job", _zombie_of_whole_job, world=_WHOLE_JOB, source=_SPREAD),
    Cast("late-decision", _late_decision, world=_WHOLE_JOB, source=_SPREAD),
    Cast("late-twins", _late_twins),
    Cast("prefixes", _prefixes, world=_PARTIAL, source=_LONG),
    Cast(
        "prefixes-forks",
        partial(_prefixes, world=_PARTIAL_FORKS),
        violation_of_branches,
        world=_PARTIAL_FORKS,
        source=_LONG,
    ),
    Cast("resumed", _resumed, world=_RESUMED, source=_IN_UNITS),
    Cast("second-attempts", _second_attempts, world=_TWO_PARTITIONS, source=_SPREAD),
)
