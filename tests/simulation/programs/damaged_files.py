"""Programs for the crash explorer: small files of a job's folders are damaged, and repaired as `distcommit store
rebuild` does first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from distcommit.app.admin.repair_store_files import repair_files
from distcommit.app.inspection.verify_store import verify_store
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.engine.driver.run import new_run_id
from distcommit.protocol.paths.store import SETTINGS
from distcommit.stores.state.damaged_files import owner_path
from distcommit.stores.state.job_store import Roots, marker_path
from distcommit.stores.state.recorded_fixed_settings import read_settings
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import (
    SOURCE,
    Program,
    files_below,
    new_machine,
    put_file,
    require_refused,
    run_pinned,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_WORLD, _BACKUP = World(buckets=2), ".backup"
_MORE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2})})
_CONFIG: dict[str, Any] = {
    "job": "job",
    "source": {"type": "kafka", "brokers": "b:1", "topics": ["x"]},
    "paths": {"store": ROOTS.store, "staging": ROOTS.staging, "output": ROOTS.output},
    "lock": {"lease_ttl_s": 30},
}


@dataclass(frozen=True, slots=True)
class _Folders(JobFolders):
    """A job's folders on a simulated machine."""

    machine: SimulatedPosix | None = None

    def roots(self) -> tuple[FileSystem, Roots]:
        assert self.machine is not None
        return SimulatedFileSystem(self.machine), ROOTS


def _folders(machine: SimulatedPosix) -> _Folders:
    path = Path("/jobs/job.yaml")
    return _Folders(parse_config(_CONFIG, path), path, machine=machine)


def _paths(machine: SimulatedPosix) -> dict[str, str]:
    settings_files = [path for path in files_below(machine, f"{ROOTS.store}/{SETTINGS}") if not path.endswith(_BACKUP)]
    return {
        marker_path(ROOTS): "marker",
        max(settings_files): "settings",
        owner_path(ROOTS.output): "output",
        owner_path(ROOTS.staging): "staging",
    }


def _damaged(*names: str, with_backup: bool = False) -> SimulatedPosix:
    """End a run, and truncate these files."""
    machine = new_machine()
    run_pinned(_WORLD, machine, SOURCE, _folders(machine).fixed_settings())
    for path, name in _paths(machine).items():
        if name in names:
            data = machine.read_file(path)
            machine.unlink(path)
            put_file(machine, path, data[: len(data) // 2])
            if with_backup:
                put_file(machine, f"{path}{_BACKUP}", data)
    machine.syncfs("/")
    return machine


def _repair(machine: SimulatedPosix) -> None:
    """Require that every damage is reported and repaired at once."""
    repaired = repair_files(_folders(machine), new_run_id(), dry_run=True)
    if not repaired or repair_files(_folders(machine), new_run_id(), dry_run=False) != repaired:
        raise AssertionError(f"the reported damage is not repaired: {repaired}")


def _repair_and_run(machine: SimulatedPosix) -> str:
    """Require that a repair that died is repeated once its lease has expired; then the job continues with unchanged
    settings."""
    for path in files_below(machine, f"{ROOTS.store}/lock"):
        machine.unlink(path)
    if repair_files(_folders(machine), new_run_id(), dry_run=True):
        _repair(machine)
    if remaining := repair_files(_folders(machine), new_run_id(), dry_run=True):
        return f"damaged still: {remaining}"
    store = _WORLD.store(machine)
    pinned = {name: pin.value for name, pin in _folders(machine).fixed_settings().settings.items() if pin.binds}
    if not {*read_settings(store).settings.items()} <= {*pinned.items()}:
        return f"the settings are {read_settings(store)}"
    if problems := verify_store(store).problems:
        return f"problems: {problems}"
    return _run_on(machine)


def _repair_without_owner(machine: SimulatedPosix) -> None:
    """Require that a store without any owner record is refused and unchanged."""
    require_refused([partial(repair_files, _folders(machine), new_run_id(), dry_run=False)], CorruptError)


def _put_back(machine: SimulatedPosix) -> str:
    """Restore the damaged files from a backup."""
    _repair_without_owner(machine)
    require_refused([partial(_WORLD.store, machine)], CorruptError)
    for path in _paths(machine):
        if f"{path}{_BACKUP}" in files_below(machine, "/job"):
            machine.unlink(path)
            put_file(machine, path, machine.read_file(f"{path}{_BACKUP}"))
            machine.unlink(f"{path}{_BACKUP}")
    return _run_on(machine)


def _run_on(machine: SimulatedPosix) -> str:
    before = _WORLD.watermarks(machine)
    run_pinned(_WORLD, machine, _MORE, _folders(machine).fixed_settings())
    return _WORLD.violation(machine, _MORE, before)


DAMAGED_FILES = (
    Program("repaired-marker", partial(_damaged, "marker", "settings", "staging"), _repair, _repair_and_run),
    Program("repaired-claims", partial(_damaged, "output", "staging"), _repair, _repair_and_run),
    Program(
        "not-repaired",
        partial(_damaged, "marker", "output", "staging", with_backup=True),
        _repair_without_owner,
        _put_back,
    ),
)
