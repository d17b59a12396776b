"""Retention of the history of runs."""

from __future__ import annotations

from pathlib import Path

from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.store import LOCK, PROGRESS, run_name
from distcommit.stores.history.retention import DEFAULT_RETENTION, Retention, expire_history
from tests.simulation.world import ROOTS
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import Machine, go, source


def test_tables_of_expired_runs_are_deleted() -> None:
    machine = Machine()
    for number in range(1, DEFAULT_RETENTION.tables + 4):
        assert go(WORLD, machine, source(a=number, b=number)).succeeded
    for table in ("plans", "task_states", "run_tables"):
        remaining = sorted(entry.name for entry in machine.scandir(f"{ROOTS.store}/{table}"))
        assert len(remaining) <= DEFAULT_RETENTION.tables + 1, table
        assert len({path.split("/")[4] for path in machine.paths(f"{ROOTS.store}/{table}")}) == len(remaining)


def test_leases_of_expired_runs_are_deleted_and_newer_and_foreign_ones_are_kept(tmp_path: Path) -> None:
    ids = [f"20250101T00000{number}-abc" for number in range(7)]
    retention, own, partitions = Retention(tables=1, runs=2), ids[5], 2
    locks = tmp_path / LOCK
    for name in (*map(run_name, ids), "somebody-s"):
        (locks / name).mkdir(parents=True)
    fs = LocalFileSystem()
    expire_history(fs, str(tmp_path), own, 1, partitions, retention)
    assert len([*locks.iterdir()]) == 8, "only the first partition must delete leases"
    expire_history(fs, str(tmp_path), own, 0, partitions, retention)
    assert {path.name for path in locks.iterdir()} == {*map(run_name, ids[3:]), "somebody-s"}


def test_progress_files_of_expired_runs_are_deleted(tmp_path: Path) -> None:
    ids = [f"20250101T00000{number}-abc" for number in range(7)]
    progress = tmp_path / PROGRESS
    for name in map(run_name, ids):
        (progress / name).mkdir(parents=True)
        (progress / name / "ingest-00000-abc-00000001").touch()
    expire_history(LocalFileSystem(), str(tmp_path), ids[5], 0, 2, Retention(tables=2, runs=9))
    assert {path.name for path in progress.iterdir()} == set(map(run_name, ids[3:]))
