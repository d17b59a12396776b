"""A task that fails for a reason that may be its node's is repeated on another node, and does only the rest there."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from distcommit.core.errors import ConfigurationError, SourceUnavailableError
from distcommit.core.work_units import WorkUnit
from distcommit.engine import node_failures
from distcommit.engine.driver.launch_interface import Result
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.node_failures import NodeFailedError, hand_back
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.separate_store import TwoFileSystems
from distcommit.stores.logs.fencing import end_run
from distcommit.testing.fakes.faulty_calls import Operation
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import SimulatedFileSystem, World
from tests.unit.engine.driver.machines import Machine, OddSource, audit, source

WORLD = World(buckets=2, partitions=2)
DATA = source(a=2, b=1, c=3, d=1, e=2)


@dataclass
class TwoNodes:
    """Launches each task on a bad node first, as Spark with a bad executor does, and then on a good one.

    Attributes:
        machine: the file system.
        is_bad: whether the node of the current attempt is the bad one.
        handed_back: names of the functions whose tasks were handed back.
    """

    machine: Machine
    is_bad: bool = False
    handed_back: list[str] = field(default_factory=list)

    def __call__(
        self, function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        return [self._task(function, settings, task) for task in range(tasks)]

    def _task(self, function: Callable[[RunSettings, int], Result], settings: RunSettings, task: int) -> Result:
        try:
            with self._bad_node():
                return function(replace(settings, hands_back=True), task)
        except (NodeFailedError, OSError):  # Spark repeats either
            self.handed_back.append(function.__name__)
            return function(replace(settings, after_death=True), task)

    @contextmanager
    def _bad_node(self) -> Iterator[None]:
        self.is_bad = True
        try:
            yield
        finally:
            self.is_bad = False


def run_on_two_nodes(machine: Machine, launch: TwoNodes, data: ModelSource) -> RunResult:
    settings = WORLD.begin(machine, data)
    with recorded_run(settings, "run", "somebody") as observer:
        result = run(launch, settings, observer=observer)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
    return result


@pytest.fixture(autouse=True)
def disk_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the simulated disk for a disk that each node mounts."""
    monkeypatch.setattr(node_failures, "_LOCAL", SimulatedFileSystem.scheme)


@pytest.mark.parametrize("path", ["/job/store", "/job/staging", "/job/output", "/"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("successes", [0, 3, 40])
def test_every_dataset_is_published_in_one_run_in_spite_of_a_bad_disk(path: str, code: int, successes: int) -> None:
    """The disk of the bad node fails from some write on, in each task anew."""
    machine, writes = Machine(), 0
    launch = TwoNodes(machine)

    def fail(operation: Operation) -> None:
        nonlocal writes
        if launch.is_bad and operation.kind not in {"read", "lstat", "scandir"} and operation.path.startswith(path):
            writes += 1
            if writes > successes:
                raise OSError(code, "of the node", operation.path)

    machine.faults.append(fail)
    result = run_on_two_nodes(machine, launch, DATA)
    assert result.totals.datasets_published == len(DATA.datasets), result.reasons
    assert (result.succeeded, result.error) == (True, "")
    assert audit(WORLD, machine).exact
    assert launch.handed_back or writes <= successes


def test_every_dataset_is_published_in_one_run_in_spite_of_a_missing_package() -> None:
    machine, read = Machine(), list[str]()
    launch = TwoNodes(machine)

    def extract(unit: WorkUnit) -> None:
        if launch.is_bad and unit.dataset_urn == "c":
            raise ConfigurationError("a package is missing") from ModuleNotFoundError("No module named 'x'")
        read.append(unit.work_unit_id)

    result = run_on_two_nodes(machine, launch, OddSource(DATA.datasets, extracting=extract))
    assert result.totals.datasets_published == len(DATA.datasets)
    assert launch.handed_back == ["ingest_partition"]
    assert len(read) == len(set(read)), "finished work units are not read again"
    assert audit(WORLD, machine).exact


def test_source_that_cannot_be_planned_on_one_node_is_planned_on_another() -> None:
    machine = Machine()
    launch = TwoNodes(machine)

    def plan() -> None:
        if launch.is_bad:
            raise ImportError("no client")

    class Unplannable(ModelSource):
        def plan(self, owned, states):  # type: ignore[no-untyped-def]
            plan()
            return super().plan(owned, states)

    result = run_on_two_nodes(machine, launch, Unplannable(DATA.datasets))
    assert result.totals.datasets_published == len(DATA.datasets)
    assert set(launch.handed_back) == {"plan_partition"}


def test_files_that_could_not_be_synced_are_read_again_elsewhere() -> None:
    """A second sync may succeed although the bytes are lost: no state may name these files."""
    machine, failed, read = Machine(), list[str](), list[str]()
    launch = TwoNodes(machine)

    def fail(operation: Operation) -> None:
        if launch.is_bad and "sync" in operation.kind and operation.path.startswith("/job/staging") and not failed:
            failed.append(operation.path)
            raise OSError(errno.EIO, "of the node", operation.path)

    machine.faults.append(fail)
    data = OddSource(DATA.datasets, extracting=lambda unit: read.append(unit.work_unit_id))
    result = run_on_two_nodes(machine, launch, data)
    assert failed
    assert len(read) > len(set(read))
    assert launch.handed_back == ["ingest_partition"]
    assert result.succeeded
    assert audit(WORLD, machine).exact


def test_only_failures_that_may_be_the_nodes_are_handed_back() -> None:
    settings = replace(WORLD.begin(Machine(), DATA), hands_back=True)
    for error in (
        OSError(errno.EACCES, "permission"),
        ConnectionRefusedError(errno.ECONNREFUSED, "of a server"),
        ValueError("of a record"),
        SourceUnavailableError("of the source"),
        None,
    ):
        hand_back(settings, error)
    for of_node in (
        OSError(errno.ENOSPC, "full", "/job/staging/x"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
        ImportError("no client"),
    ):
        with pytest.raises(NodeFailedError, match=type(of_node).__name__):
            hand_back(settings, of_node)
        hand_back(replace(settings, hands_back=False), of_node)


def test_failures_of_a_target_across_the_network_are_not_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_failures, "_LOCAL", "file")
    settings = replace(WORLD.begin(Machine(), DATA), hands_back=True)
    hand_back(settings, OSError(errno.ENOSPC, "of the quota", "/no-such-folder/output/a"))
    with pytest.raises(NodeFailedError):
        hand_back(settings, OSError(errno.ENOSPC, "of the node's disk", "/tmp/spooled"))


def test_failure_of_a_store_across_the_network_is_not_the_nodes_although_the_output_is_local(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_failures, "_LOCAL", "file")
    settings = replace(WORLD.begin(Machine(), DATA), hands_back=True)
    apart = TwoFileSystems(settings.store.fs, LocalFileSystem(), "/no-such-folder/store")
    settings = replace(settings, store=replace(settings.store, fs=apart))
    hand_back(settings, OSError(errno.EIO, "of the name node", "/no-such-folder/store/a"))
    with pytest.raises(NodeFailedError):
        hand_back(settings, OSError(errno.EIO, "of the node's disk", "/no-such-folder/output/a"))
