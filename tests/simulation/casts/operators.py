"""Casts for the interleaver: operators beside runs, zombies and one another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import Done, SetWatermark
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.core.watermark import Watermark
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.store import SEGMENT_SUFFIX
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.casts.parts import (
    SOURCE,
    WORLD,
    Act,
    Cast,
    Scene,
    drains,
    finishes,
    ingests,
    new_run,
    quarantine,
    runs,
)
from tests.simulation.log_watch import set_back
from tests.simulation.programs.parts import publishing_at_most, violation_after_set_back
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

_SET = Watermark({"0": 1, "1": 0})
_BEFORE = ModelSource({"a": ModelDataset({"0": 1, "1": 1}), "b": ModelDataset({"0": 1})})


def _sets(store: JobStore, scene: Scene) -> None:
    """Set a dataset's watermark, if the dataset was never committed."""
    if store.bucket_log(0).refresh().state_of("a").watermark is None:
        operator_actions.set_watermark(store, "a", _SET, "person")


def _person_sets(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"run": finishes(new_run(machine)), "person": _sets}


def _violation_after_set(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """Require that dataset a begins at the set watermark; a command that is late sets it back."""
    store = WORLD.store(machine)
    folder = store.bucket_log(0).folder
    paths = sorted(f"{folder}/{e.name}" for e in store.fs.list_folder(folder) if e.name.endswith(SEGMENT_SUFFIX))
    records = [decode_segment(store.fs.read(path), path).record for path in paths]
    was_set = any(isinstance(record, SetWatermark) for record in records)
    for record in records:
        if isinstance(record, SetWatermark):
            break
        if isinstance(record, Done) and any(name.dataset_urn == "a" for name in record.sequences):
            return (
                violation_after_set_back(machine, WORLD, SOURCE, 3)
                if was_set
                else WORLD.violation(machine, SOURCE, before)
            )
    return WORLD.violation(machine, SOURCE, before, set_by_hand=True)


def _quarantined(machine: SimulatedPosix) -> RunSettings:
    """A run seals a sequence and dies before it publishes a file; the sequence is quarantined."""
    settings = new_run(machine)
    with publishing_at_most(machine, 0), suppress(Crashed):
        ingest_partition(settings, 0)
    quarantine(settings.store.bucket_log(0, settings.epoch), SequenceName("a", settings.epoch))
    return settings


def _abandons(store: JobStore, scene: Scene) -> None:
    operator_actions.abandon(store, "a", "person")


def _tries_all_actions(store: JobStore, scene: Scene) -> None:
    """Try the operator actions one after the other, as long as they are allowed."""
    for act in (
        partial(operator_actions.retry, store, "a", "person"),
        partial(operator_actions.abandon, store, "a", "person"),
        partial(operator_actions.retry, store, "a", "person"),
    ):
        with suppress(ConflictError):
            act()


def _person_abandons(machine: SimulatedPosix) -> Mapping[str, Act]:
    """An operator abandons a quarantined sequence that a zombie is about to execute, and a run comes."""
    return {"zombie": drains(_quarantined(machine)), "person": _abandons, "run": runs(beside_people=True)}


def _person_retries(machine: SimulatedPosix) -> Mapping[str, Act]:
    return {"zombie": drains(_quarantined(machine)), "person": _tries_all_actions, "run": runs(beside_people=True)}


def _stops(store: JobStore, scene: Scene) -> None:
    """Quarantine, abandon and retry a sequence, as far as these are allowed."""
    for act in (operator_actions.quarantine, operator_actions.abandon, operator_actions.retry):
        with suppress(ConflictError):
            act(store, "a", "person")


def _person_stops(machine: SimulatedPosix) -> Mapping[str, Act]:
    """An operator quarantines a pending sequence that a zombie is about to execute, and a run comes."""
    settings = new_run(machine)
    with publishing_at_most(machine, 0), suppress(Crashed):
        ingest_partition(settings, 0)
    return {"zombie": drains(settings), "person": _stops, "run": runs(beside_people=True)}


def _confirms(urn: str) -> Act:
    """Set a watermark to its present value, so that no plan made before may be sealed."""

    def act(store: JobStore, scene: Scene) -> None:
        log = store.bucket_log(0)
        operator_actions.set_watermark(store, urn, log.refresh().state_of(urn).watermark, "person")
        fold = log.refresh()
        if fold.state_of(urn).closed_epoch < fold.fence_epoch:
            raise AssertionError(f"the run that is alive may still seal {urn}")

    return act


def _imports(store: JobStore, scene: Scene) -> None:
    """Set the watermarks of many datasets at once to their present values."""
    log = store.bucket_log(0)
    watermarks = {urn: state.watermark for urn, state in log.refresh().datasets.items()}
    requested = {urn: watermark for urn, watermark in watermarks.items() if watermark is not None}
    operator_actions.set_watermarks(store, requested, requested, "person")
    fold = log.refresh()
    if any(fold.state_of(urn).closed_epoch < fold.fence_epoch for urn in requested):
        raise AssertionError("the live run may still seal imported datasets")


def _operators_confirm(machine: SimulatedPosix) -> Mapping[str, Act]:
    WORLD.run(machine, _BEFORE)
    return {"run": finishes(new_run(machine)), "person": _confirms("a"), "other": _imports}


def _violation_after_confirming(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """Allow for a watermark that moved before it was confirmed: it is set back."""
    return violation_after_set_back(machine, WORLD, SOURCE, set_back(WORLD.store(machine)))


def _two_operators(machine: SimulatedPosix) -> Mapping[str, Act]:
    """One operator retries a quarantined sequence, another one abandons it, and a run comes."""
    _quarantined(machine)

    def retries(store: JobStore, scene: Scene) -> None:
        operator_actions.retry(store, "a", "person")
        runs(beside_people=True)(store, scene)

    return {"one": _abandons, "two": retries}


_STOPPING = World(stop_after_failed_runs=2)
_BROKEN = ModelSource({**SOURCE.datasets, "a": replace(SOURCE.datasets["a"], fails=frozenset("1"))})


def _reads_again(store: JobStore, scene: Scene) -> None:
    """Restart a stopped dataset, if it was stopped."""
    with suppress(ConflictError):
        operator_actions.retry(store, "a", "person")


def _person_reads_again(machine: SimulatedPosix) -> Mapping[str, Act]:
    """The second run that cannot read a dataset records that by two tasks; an operator restarts it, and a run comes."""
    _STOPPING.run(machine, _BROKEN)
    settings = new_run(machine, _STOPPING, _BROKEN)
    ingests(settings)(settings.store, Scene())
    drain, run = drains(settings), runs(_STOPPING, beside_people=True)
    return {"one": drain, "two": drain, "person": _reads_again, "run": run}


def _release_and_run(cast: Cast, machine: SimulatedPosix) -> bool:
    operator_actions.retry_all(cast.world.store(machine), "person")
    return cast.world.run(machine, cast.source).succeeded


OPERATORS = (
    Cast("person-sets", _person_sets, _violation_after_set),
    Cast("person-abandons", _person_abandons),
    Cast("person-retries", _person_retries),
    Cast("person-stops", _person_stops),
    Cast("people-confirm", _operators_confirm, _violation_after_confirming),
    Cast("two-people", _two_operators),
    Cast("person-reads-again", _person_reads_again, world=_STOPPING, last_run=_release_and_run),
)
