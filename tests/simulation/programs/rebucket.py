"""Programs for the crash explorer: a job gets another number of buckets, or other names of its datasets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.constructs.converters.schema import SchemaConverter
from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.core.watermark import Watermark, as_offset
from distcommit.engine.driver.run import new_run_id, run
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.logs.generation_checks import require_current_generation
from distcommit.stores.logs.rebucket_logs import Move, Rebucketed, rebucket
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.recorded_fixed_settings import read_settings
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import (
    Program,
    half_done,
    new_machine,
    planned,
    require_refused,
    run_pinned,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, World, launch_here

_FIRST = ModelSource({urn: ModelDataset({"0": 1}) for urn in "acgi"})
_SECOND = ModelSource({urn: ModelDataset({"0": 2}) for urn in "acgi"})


def resized(machine: SimulatedPosix, buckets: int) -> Rebucketed:
    """Rebucket as `distcommit store rebucket` does, without the lock, which is not needed for safety."""
    return rebucket(World(resized=True).store(machine), Move(buckets), new_run_id(), lambda step: None)


def _lived(before: int) -> SimulatedPosix:
    """End a run; the next one dies when all of its files are staged and nothing is sealed."""
    machine, world = new_machine(), World(buckets=before)
    world.run(machine, _FIRST)
    settings = planned(machine, world, _SECOND)

    def die(operation: Operation) -> None:
        if operation.kind == "rename" and "/log/" in operation.path:
            raise Crashed

    machine.gate = die
    with suppress(Crashed):
        ingest_partition(settings, 0)
    machine.gate = None
    machine.syncfs("/")
    return machine


def _rebucket(buckets: int, machine: SimulatedPosix) -> None:
    resized(machine, buckets)


def _half_made(store: JobStore) -> bool:
    try:
        require_current_generation(store, store.job_log().refresh())
    except ConflictError:
        return True
    return False


def _give_again(before: int, buckets: int, machine: SimulatedPosix) -> str:
    """Require that no other command continues until the repeated command finishes; then the logs have the same
    content."""
    world = World(buckets=buckets)
    store = World(resized=True).store(machine)
    if _half_made(store):
        old = World(resized=True)
        require_refused([partial(old.run, machine, _SECOND), partial(resized, machine, buckets + 1)], ConflictError)
        if store.bucket_log(0).refresh().moved_to:
            urn = next(iter(store.bucket_log(0).refresh().datasets))
            require_refused([partial(operator_actions.set_watermark, store, urn, None, "person")], ConflictError)
    resized(machine, buckets)
    requested, actual = stored_states(World(buckets=before).store(_lived(before))), stored_states(world.store(machine))
    if requested != actual:
        return f"the store knew {requested}, and knows {actual}"
    if resized(machine, buckets).epoch:
        return "it is done again"
    world.run(machine, _SECOND)
    return world.violation(machine, _SECOND, {})


def _pending() -> SimulatedPosix:
    machine = new_machine()
    half_done(machine, World())
    machine.syncfs("/")
    return machine


def _refused(machine: SimulatedPosix) -> None:
    require_refused([partial(resized, machine, 2)], ConflictError)


def _standing(store: JobStore) -> dict[str, tuple[object, ...]]:
    return {urn: (state.status, state.watermark, state.closed_epoch) for urn, state in stored_states(store).items()}


def _nothing_was_changed(machine: SimulatedPosix) -> str:
    before, store = _standing(World().store(_pending())), World().store(machine)
    if _standing(store) != before or store.job_log().refresh().under_way or store.bucket_log(0).refresh().moved_to:
        return "a refused command has changed something"
    old_paths = [path for path, _ in machine.walk(f"{ROOTS.store}/log") if "generations" in path]
    return f"left behind: {old_paths}" if old_paths else ""


def _program(name: str, before: int, buckets: int) -> Program:
    return Program(name, partial(_lived, before), partial(_rebucket, buckets), partial(_give_again, before, buckets))


def _topic_of(urn: str) -> str:
    return urn.partition("@")[0]


@dataclass(frozen=True, slots=True)
class _Topics(ModelSource):
    """A source whose datasets are topics, or their partitions."""

    provenance = Provenance("partition", "offset", _topic_of)


_TOPIC = _Topics({"t": ModelDataset({"0": 1, "1": 1}), "u": ModelDataset({"0": 1})})
NAMED = {
    "partition": _Topics({name: ModelDataset({name[-1]: 2}) for name in ("t@0", "t@1", "u@0")}),
    "topic": _Topics({"t": ModelDataset({"0": 3, "1": 3}), "u": ModelDataset({"0": 3})}),
}
"""A job's source by the naming of its datasets."""
NAMED_BY = "source.dataset"


def named(kind: str) -> FixedSettings:
    """Return the setting, as a job stores it."""
    return FixedSettings({NAMED_BY: FixedSetting(kind)})


def renames(kind: str) -> Move:
    """Return the new names: a topic as one dataset, or as one for each partition."""

    def named_now(urn: str, partition: str) -> str:
        return _topic_of(urn) if kind == "topic" else f"{_topic_of(urn)}@{partition}"

    return Move(2, {NAMED_BY: kind}, named_now)


def _renamed(kind: str, machine: SimulatedPosix) -> None:
    rebucket(World(buckets=2).store(machine), renames(kind), new_run_id(), lambda step: None)


def read_as_topics(machine: SimulatedPosix | None = None) -> SimulatedPosix:
    """Run with datasets named by topic."""
    machine = machine or new_machine()
    run_pinned(World(buckets=2), machine, _TOPIC, named("topic"))
    machine.syncfs("/")
    return machine


def _read_as_partitions() -> SimulatedPosix:
    machine = read_as_topics()
    _renamed("partition", machine)
    run_pinned(World(buckets=2), machine, NAMED["partition"], named("partition"))
    machine.syncfs("/")
    return machine


def _stopped() -> SimulatedPosix:
    """Stop a dataset with an unreadable part."""
    machine = read_as_topics()
    fails = _Topics({"t": ModelDataset({"0": 2, "1": 2}, fails=frozenset("0"))})
    settings = World(buckets=2, stop_after_failed_runs=1).begin(machine, fails)
    result = run(launch_here, settings, fixed=named("topic"))
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    machine.syncfs("/")
    return machine


def _renamed_or_refused(machine: SimulatedPosix) -> None:
    require_refused([partial(_renamed, "partition", machine)], ConflictError)


def _still_topics(machine: SimulatedPosix) -> str:
    store, before = World(buckets=2).store(machine), World(buckets=2).store(_stopped())
    same = {urn: state.watermark for urn, state in stored_states(store).items()}
    if same != {urn: state.watermark for urn, state in stored_states(before).items()} or _half_made(store):
        return "a refused command has changed something"
    return "" if read_settings(store).settings == {NAMED_BY: "topic"} else "the setting is another one"


def _keeping(source: Source, sink: Sink) -> TaskFlow:
    """A converter that stores the columns of a dataset's first records for those that follow."""
    keeps = SchemaConverter.model_validate({"type": "schema", "evolution": "pin"})
    return TaskFlow(source, (Branch(sink),), stages=(Stage("schema", keeps),))


KEEPS = World(buckets=2, flow=_keeping)


def _keeps(kind: str) -> SimulatedPosix:
    """Run with datasets named by topic or by partition, and store their columns."""
    machine, source = new_machine(), {"topic": _TOPIC, "partition": NAMED["partition"]}[kind]
    run_pinned(KEEPS, machine, source, named(kind))
    machine.syncfs("/")
    return machine


def _read_on(kind: str, counts: int, machine: SimulatedPosix, world: World | None = None) -> str:
    """Finish the move to generation `counts` by the same command; each record must be there once, under one of the
    names."""
    world, before = world or World(buckets=2), "topic" if kind == "partition" else "partition"
    store = world.store(machine)
    if store.generation == counts and read_settings(store).settings != {NAMED_BY: kind}:
        return "a run that names datasets as before would read on where it stood"
    if store.generation < counts:
        _renamed(kind, machine)
    store = world.store(machine)
    if _half_made(store) or (store.generation, read_settings(store).settings) != (counts, {NAMED_BY: kind}):
        return "the settings are not those of the generation that counts"
    require_refused([partial(run_pinned, world, machine, NAMED[before], named(before))], ConfigurationError)
    run_pinned(world, machine, NAMED[kind], named(kind))
    return violation_by_name(world, kind, machine)


def violation_by_name(world: World, kind: str, machine: SimulatedPosix) -> str:
    """Return a violation after a run with datasets named so, whatever their names before."""
    read, stands = NAMED[kind].datasets, world.watermarks(machine)
    datasets = {urn: ModelDataset(ends) for urn, mark in stands.items() if urn not in read and (ends := _ends(mark))}
    return world.violation(machine, _Topics({**datasets, **read}), {}, set_by_hand=True)


def _ends(watermark: Watermark) -> dict[str, int]:
    return {partition: as_offset(position) for partition, position in watermark.positions.items()}


REBUCKET = (
    _program("rebucket-fewer", 3, 2),
    _program("rebucket-more", 1, 3),
    Program("rebucket-refused", _pending, _refused, _nothing_was_changed),
    Program("rebucket-renamed", read_as_topics, partial(_renamed, "partition"), partial(_read_on, "partition", 1)),
    Program("rebucket-renamed-refused", _stopped, _renamed_or_refused, _still_topics),
    Program(
        "rebucket-renamed-kept",
        partial(_keeps, "topic"),
        partial(_renamed, "partition"),
        partial(_read_on, "partition", 1, world=KEEPS),
    ),
    Program(
        "rebucket-renamed-kept-of-several",
        partial(_keeps, "partition"),
        partial(_renamed, "topic"),
        partial(_read_on, "topic", 1, world=KEEPS),
    ),
    Program("rebucket-renamed-back", _read_as_partitions, partial(_renamed, "topic"), partial(_read_on, "topic", 2)),
)
