"""Committed data files stay even if the store reports their attempts as aborted.

All three folders of the job are restored from a copy, made after a run had staged its data and before it sealed them.
The table is elsewhere and is not restored. The next run takes the earlier run's committed attempt for an aborted one.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from distcommit.core.errors import DistcommitError
from distcommit.engine.driver.run import new_run_id, run
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.stores.logs.fencing import begin_run, end_run
from distcommit.stores.state.job_store import Roots, open_store
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import SimulatedClock, launch_here


class _CopiedInMidRun(LocalFileSystem):
    """A file system that copies the job's folders after task states are put and before anything is sealed."""

    def __init__(self, job: Path, copy: Path) -> None:
        super().__init__(durable=False)
        self.job, self.copy = job, copy

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        answers = super().put_all_if_absent(files)
        if any("/task_states/" in path for path, _ in files) and not self.copy.exists():
            shutil.copytree(self.job, self.copy)
        return answers


class _Delta:
    def __init__(self, tables: Path) -> None:
        self.tables = tables

    def sink(self) -> CommitterSink:
        return DeltaSink.model_validate({"type": "delta", "location": str(self.tables)})

    def rows(self) -> list[int]:
        return sorted(DeltaTable(self.tables / "d").to_pyarrow_table()["offset"].to_pylist())


class _Iceberg:
    def __init__(self, tables: Path) -> None:
        self.catalog = {"uri": f"sqlite:///{tables}/catalog.db", "warehouse": f"file://{tables}/warehouse"}

    def sink(self) -> CommitterSink:
        catalog = {"type": "sql", **self.catalog}
        return IcebergSink.model_validate({"type": "iceberg", "catalog": catalog, "namespace": "n"})

    def rows(self) -> list[int]:
        close_opened()
        with load_catalog("default", type="sql", **self.catalog) as catalog:
            return sorted(catalog.load_table(("n", "d")).scan().to_arrow()["offset"].to_pylist())


def _run(fs: LocalFileSystem, job: Path, sink: CommitterSink, end: int) -> None:
    roots = Roots(*(str(job / name) for name in ("store", "staging", "output")))
    store, run_id = open_store(fs, roots, "job", 1, create=True), new_run_id()
    settings = RunSettings(
        store=store,
        run_id=run_id,
        epoch=begin_run(store, run_id),
        partitions=1,
        flow=TaskFlow.straight(ModelSource({"d": ModelDataset({"0": end})}), sink),
        policy=CommitPolicy.FULL,
        job_level=False,
        min_interval_s=0,
        max_attempts=3,
        task_attempts=1,
        clock=SimulatedClock(),
    )
    result = run(launch_here, settings)
    end_run(store, settings.epoch, clean=result.succeeded)


@pytest.mark.parametrize("kind", [_Delta, _Iceberg])
def test_files_of_a_table_newer_than_the_store_are_not_deleted(tmp_path: Path, kind: type[_Delta | _Iceberg]) -> None:
    job, copy, tables = tmp_path / "job", tmp_path / "copy", tmp_path / "tables"
    tables.mkdir()
    plain, target = LocalFileSystem(durable=False), kind(tables)
    _run(plain, job, target.sink(), 3)
    _run(_CopiedInMidRun(job, copy), job, target.sink(), 5)
    assert target.rows() == [0, 1, 2, 3, 4]
    shutil.rmtree(job)
    shutil.copytree(copy, job)
    with suppress(DistcommitError):  # a rejection is allowed: then nothing is changed
        _run(plain, job, target.sink(), 6)
    assert target.rows() == [0, 1, 2, 3, 4]
