"""Programs for the crash explorer: runs of a job with changed settings, or with `start: latest`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.source import Planned, SourceState
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.core.records.log_records import DatasetStatus
from distcommit.sources.kafka.plan_dataset import plan_dataset
from distcommit.sources.kafka.topics import PartitionLog
from distcommit.stores.state.recorded_fixed_settings import read_settings
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, new_machine, require_equal, require_refused, run_pinned
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

_WORLD = World()
_BY_TOPIC = FixedSettings({"source.dataset": FixedSetting("topic")})
_BY_PARTITION = FixedSettings({"source.dataset": FixedSetting("partition")})
_TOPICS = ModelSource({"a": ModelDataset({"0": 2, "1": 1})})
_PARTITIONS = ModelSource({"a@0": ModelDataset({"0": 2}), "a@1": ModelDataset({"1": 1})})


def _empty_store() -> SimulatedPosix:
    machine = new_machine()
    _WORLD.store(machine)
    machine.syncfs("/")
    return machine


_run = partial(run_pinned, _WORLD)


def _first_run(machine: SimulatedPosix) -> None:
    _run(machine, _TOPICS, _BY_TOPIC)


def _is_committed(machine: SimulatedPosix) -> bool:
    """Return whether a dataset has a watermark or an open sequence."""
    store = _WORLD.store(machine)
    folds = [store.bucket_log(bucket).refresh() for bucket in range(store.buckets)]
    return any(state.open or state.watermark for fold in folds for state in fold.datasets.values())


def _run_with_others(machine: SimulatedPosix) -> str:
    """Require that other settings are refused once anything is committed; otherwise they apply."""
    if _is_committed(machine):
        require_equal(read_settings(_WORLD.store(machine)).settings, {"source.dataset": "topic"})
        require_refused([partial(_run, machine, _PARTITIONS, _BY_PARTITION)], ConfigurationError)
        _first_run(machine)
        return _WORLD.violation(machine, _TOPICS, {})
    _run(machine, _PARTITIONS, _BY_PARTITION)
    return _WORLD.violation(machine, _PARTITIONS, {})


def _run_that_publishes_nothing(*, fails: bool) -> SimulatedPosix:
    machine = _empty_store()
    failing = {"a": ModelDataset({"0": 2, "1": 1}, fails=frozenset("01"))}
    _run(machine, ModelSource(failing if fails else {}), _BY_TOPIC)
    machine.syncfs("/")
    return machine


def _second_run(machine: SimulatedPosix) -> None:
    _run(machine, _PARTITIONS, _BY_PARTITION)


def _run_with_the_first_settings(machine: SimulatedPosix) -> str:
    """Require that the second run's settings apply once anything is committed, and any before."""
    if _is_committed(machine):
        require_equal(read_settings(_WORLD.store(machine)).settings, {"source.dataset": "partition"})
        require_refused([partial(_run, machine, _TOPICS, _BY_TOPIC)], ConfigurationError)
        _second_run(machine)
        return _WORLD.violation(machine, _PARTITIONS, {})
    _run(machine, _TOPICS, _BY_TOPIC)
    require_refused([partial(_second_run, machine)], ConfigurationError)
    return _WORLD.violation(machine, _TOPICS, {})


def _pinned(value: str, *, binds: bool) -> FixedSettings:
    return FixedSettings({"sink.partition_by": FixedSetting(value, binds=binds)})


def _first_run_that_only_notes(machine: SimulatedPosix) -> None:
    _run(machine, _TOPICS, _pinned("hour", binds=False))


def _run_that_is_bound(machine: SimulatedPosix) -> str:
    """Require that settings become binding with the first published file, and are free before."""
    if not _is_committed(machine):
        _run(machine, _TOPICS, _pinned("day", binds=True))
        require_refused([partial(_run, machine, _TOPICS, _pinned("hour", binds=True))], ConfigurationError)
        return _WORLD.violation(machine, _TOPICS, {})
    noted = read_settings(_WORLD.store(machine)).unfixed_values == {"sink.partition_by": ("hour",)}
    now, other = ("hour", "day") if noted else ("day", "hour")
    if noted:
        require_refused([partial(_run, machine, _TOPICS, _pinned(other, binds=True))], ConfigurationError)
    _run(machine, _TOPICS, _pinned(now, binds=True))
    for binds in (True, False):
        require_refused([partial(_run, machine, _TOPICS, _pinned(other, binds=binds))], ConfigurationError)
    return _WORLD.violation(machine, _TOPICS, {})


@dataclass(frozen=True, slots=True)
class _FromItsEnd(ModelSource):
    """Source that reads new datasets from their end, by the rules of Kafka's `start: latest`."""

    expired_offsets: str = "fail"
    records_per_dataset: int = 0
    records_per_work_unit: int = 2
    bytes_per_dataset: int = 0

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        for urn, dataset in self.datasets.items():
            state = states.get(urn)
            if owned(urn) and (state is None or state.status is DatasetStatus.IDLE):
                logs = {int(p): PartitionLog(0, records, records) for p, records in dataset.partitions.items()}
                planned = plan_dataset(self, urn, logs, state)
                if planned is not None:
                    yield planned


_OLD = _FromItsEnd({"a": ModelDataset({"0": 2})})
_GROWN = _FromItsEnd({"a": ModelDataset({"0": 3, "1": 5})})


def _followed_from_its_end() -> SimulatedPosix:
    machine = new_machine()
    _WORLD.run(machine, _OLD)
    machine.syncfs("/")
    return machine


def _run_with_a_new_partition(machine: SimulatedPosix) -> None:
    _WORLD.run(machine, _GROWN)


def _all_since_is_there(machine: SimulatedPosix) -> str:
    """Require that only the dataset's first records are skipped: the partition added later is read from its
    beginning."""
    before = _WORLD.watermarks(machine)
    _WORLD.run(machine, _GROWN)
    origin = _WORLD.store(machine).bucket_log(0).refresh().state_of("a").origin
    if origin != {"0": 2, "1": 0}:
        return f"the dataset is read from {origin} on"
    return _WORLD.violation(machine, _GROWN, before, set_by_hand=True)


SETTINGS = (
    Program("settings", _empty_store, _first_run, _run_with_others),
    Program(
        "settings-replaced",
        partial(_run_that_publishes_nothing, fails=False),
        _second_run,
        _run_with_the_first_settings,
    ),
    Program(
        "settings-replaced-after-failures",
        partial(_run_that_publishes_nothing, fails=True),
        _second_run,
        _run_with_the_first_settings,
    ),
    Program("settings-noted", _empty_store, _first_run_that_only_notes, _run_that_is_bound),
    Program("start-latest", _followed_from_its_end, _run_with_a_new_partition, _all_since_is_there),
)
