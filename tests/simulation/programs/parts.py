"""Building blocks of programs for the crash explorer: see `simulation.programs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from msgspec import structs

from distcommit.app.auditing.audit import audit_store
from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import DistcommitError
from distcommit.core.records.fixed_settings import FixedSettings
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.launch_interface import Launch, Result
from distcommit.engine.driver.run import run
from distcommit.engine.planning.plan_partition import build_manifest, plan_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.state.recorded_fixed_settings import require_settings
from distcommit.stores.state.run_plans import put_manifest
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World, launch_here

SOURCE = ModelSource({"a": ModelDataset({"0": 2, "1": 1}), "b": ModelDataset({"0": 2})})
ASIDE = "/job/aside"


@dataclass(frozen=True, slots=True)
class Program:
    """`find` creates the machine, `act` is crashed, and `recover` runs after the crash and returns a violation."""

    name: str
    find: Callable[[], SimulatedPosix]
    act: Callable[[SimulatedPosix], None]
    recover: Callable[[SimulatedPosix], str]


class Meddling:
    """System calls on a machine with foreign changes just before matching calls.

    Args:
        machine: receives the calls.
        fits: whether a call, by name and arguments, matches.
        meddles: the foreign changes: the first before the first matching call, and so on.
    """

    def __init__(
        self,
        machine: SimulatedPosix | Meddling,
        fits: Callable[[str, tuple[Any, ...]], bool],
        *meddles: Callable[[], object],
    ) -> None:
        self._machine, self._fits, self._remaining = machine, fits, list(meddles)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._machine, name)

        def passed_on(*arguments: Any) -> Any:
            if self._remaining and self._fits(name, arguments):
                self._remaining.pop(0)()
            return call(*arguments)

        return passed_on

    def as_calls(self) -> PosixCalls:
        """Return itself, with the type that it replaces."""
        return cast(PosixCalls, self)


def new_machine() -> SimulatedPosix:
    """Return a machine with the job's parent folder and nothing else."""
    machine = SimulatedPosix()
    machine.mkdir("/job")
    return machine


def planned(machine: SimulatedPosix, world: World, source: ModelSource) -> RunSettings:
    """Return a run that has fenced, recovered and planned, and will seal each bucket's datasets at once."""
    settings = replace(world.begin(machine, source), min_interval_s=1_000_000)
    for partition in range(world.partitions):
        recover_partition(settings, partition)
    plans = [plan_partition(settings, partition) for partition in range(world.partitions)]
    put_manifest(
        settings.store.fs, ROOTS.store, structs.replace(build_manifest(settings, plans), large_units=(), lent_ranges=())
    )
    return settings


def half_done(machine: SimulatedPosix, world: World, *, moved: int = 1) -> None:
    """Let a run die in its commit, with one file published and the others staged."""
    world.store(machine)  # which probes the output with renames of its own
    with publishing_at_most(machine, moved), suppress(Crashed):
        world.run(machine, SOURCE)


def killed_before_drain(machine: SimulatedPosix, world: World, source: ModelSource) -> RunSettings:
    """Run the job up to the end of ingest, kill its driver, and return the run's settings."""
    launched: list[RunSettings] = []

    def stopping(launch: Launch) -> Launch:
        def call(
            function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
        ) -> list[Result]:
            if function is drain_partition:
                raise KeyboardInterrupt
            launched.append(settings)
            return launch(function, settings, tasks, kind)

        return call

    with suppress(KeyboardInterrupt):
        world.run(machine, source, launched=stopping)
    return launched[-1]


@contextmanager
def publishing_at_most(machine: SimulatedPosix, files: int) -> Iterator[None]:
    """Let the process die as it publishes the next file. Folders exist, so that files are published one by one."""
    fs = SimulatedFileSystem(machine)
    for urn in SOURCE.datasets:
        fs.make_folders(f"{ROOTS.output}/{folder_of(urn)}")
    fs.sync_tree(ROOTS.output)
    remaining = [files]

    def gate(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(ROOTS.output) and ".parquet" in operation.path:
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crashed

    machine.gate = gate
    try:
        yield
    finally:
        machine.gate = None


def staged(machine: SimulatedPosix) -> list[str]:
    """Return the paths of the staged files."""
    return sorted(
        path
        for _, path, data in machine.files()
        if path.startswith(f"{ROOTS.staging}/") and f"/{OWNERSHIP_FOLDER}/" not in path and data is not None
    )


def unsettled(machine: SimulatedPosix) -> DatasetState:
    """Return the first dataset with an open sequence, or one without a name."""
    states = World().store(machine).bucket_log(0).refresh().datasets.values()
    return next((state for state in states if state.status is not DatasetStatus.IDLE), DatasetState(""))


def run_and_look(machine: SimulatedPosix, world: World, source: ModelSource) -> str:
    """Run once more, and return the violation, if any."""
    before = world.watermarks(machine)
    world.run(machine, source)
    return world.violation(machine, source, before)


def violation_after_set_back(machine: SimulatedPosix, world: World, source: ModelSource, again: int) -> str:
    """Return a violation after everything was read, an operator set a watermark back by `again` records, and a run
    came.

    Exactly these records must be there a second time.
    """
    store = world.store(machine)
    audit = audit_store(store, source.provenance, deep=True)
    records = sum(sum(dataset.partitions.values()) for dataset in source.datasets.values())
    counts = (audit.records, audit.duplicates, audit.gaps, audit.pending, audit.unreadable, audit.unknown_files)
    if counts != (records + again, again, 0, [], [], []):
        return f"not {again} records are there a second time: {audit}"
    reached = world.watermarks(machine)
    ends = {urn: Watermark(dict(dataset.partitions)) for urn, dataset in source.datasets.items()}
    return "" if reached == ends else f"watermarks are {reached}, expected {ends}"


def put_file(machine: SimulatedPosix, path: str, data: bytes) -> None:
    """Write a file as a foreign program."""
    fd = machine.open_new(path)
    machine.write(fd, data)
    machine.fsync(fd)
    machine.close(fd)


def files_below(machine: SimulatedPosix, root: str) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {path: data for _, path, data in machine.files() if path.startswith(f"{root}/") and data is not None}


def replace_files(machine: SimulatedPosix, root: str, files: Mapping[str, bytes]) -> None:
    """Replace all files below a folder by others, such as a backup."""
    for path in files_below(machine, root):
        machine.unlink(path)
    for path, data in files.items():
        put_file(machine, path, data)


def require_refused(refused: Iterable[Callable[[], object]], kind: type[DistcommitError] = DistcommitError) -> None:
    """Call each.

    Raises:
        AssertionError: if one does not raise an error of that kind.
    """
    for call in refused:
        try:
            call()
        except kind:
            continue
        raise AssertionError(f"not refused: {call}")


def require_equal(actual: object, expected: object) -> None:
    """Raise AssertionError if the values differ."""
    if actual != expected:
        raise AssertionError(f"expected {expected}, found {actual}")


def run_pinned(world: World, machine: SimulatedPosix, source: ModelSource, pinned: FixedSettings) -> None:
    """Run once as a job whose settings are compared with those of the store."""
    require_settings(world.store(machine), pinned)
    settings = world.begin(machine, source)
    result = run(launch_here, settings, fixed=pinned)
    end_run(settings.store, settings.epoch, clean=result.succeeded)
