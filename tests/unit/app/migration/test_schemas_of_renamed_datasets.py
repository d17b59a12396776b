"""Datasets renamed by `rebucket` are read with the stored schemas of their old names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.constructs.converters.schema import SchemaConverter
from distcommit.engine.driver.run import RunResult, new_run_id, run
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.logs.fencing import begin_run, end_run
from distcommit.stores.logs.rebucket_logs import rebucket
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import replace_files, run_pinned
from tests.simulation.programs.rebucket import KEEPS, NAMED, named, renames
from tests.simulation.world import SimulatedClock, launch_here
from tests.unit.engine.driver.machines import Machine


def _store(folder: Path) -> JobStore:
    roots = Roots(*(str(folder / name) for name in ("store", "staging", "output")))
    return open_store(LocalFileSystem(durable=False), roots, "job", 2, create=True)


def _run(folder: Path, kind: str, datasets: dict[str, ModelDataset]) -> RunResult:
    store, run_id = _store(folder), new_run_id()
    stage = Stage("schema", SchemaConverter.model_validate({"type": "schema", "evolution": "pin"}))
    sink = FileSink.model_validate({"compression": "none"})
    settings = RunSettings(
        store=store,
        run_id=run_id,
        epoch=begin_run(store, run_id),
        partitions=1,
        flow=TaskFlow(ModelSource(datasets), (Branch(sink),), stages=(stage,)),
        policy=CommitPolicy.FULL,
        job_level=False,
        min_interval_s=0,
        max_attempts=3,
        task_attempts=1,
        clock=SimulatedClock(),
    )
    result = run(launch_here, settings, fixed=named(kind))
    end_run(store, settings.epoch, clean=result.succeeded)
    return result


@pytest.mark.parametrize("kind", ["partition", "topic"])
def test_renamed_dataset_is_read_with_the_columns_of_its_old_name(tmp_path: Path, kind: str) -> None:
    by = {
        "topic": lambda end: {"t": ModelDataset({"0": end, "1": end})},
        "partition": lambda end: {f"t@{number}": ModelDataset({f"{number}": end}) for number in range(2)},
    }
    before = "topic" if kind == "partition" else "partition"
    assert _run(tmp_path, before, by[before](3)).succeeded
    assert _run(tmp_path, before, by[before](4)).succeeded
    rebucket(_store(tmp_path), renames(kind), new_run_id(), lambda step: None)
    result = _run(tmp_path, kind, by[kind](5))
    assert result.succeeded, result.reasons.entries
    before_and_now = [
        {document["schema"]["arrow"] for document in _documents(tmp_path) if ("@" in document["dataset"]) is partitions}
        for partitions in (False, True)
    ]
    assert before_and_now[0] == before_and_now[1] != set()


@dataclass(frozen=True, slots=True)
class _Partitions(ModelSource):
    """A source whose job file names datasets by partition, whatever their earlier names."""

    provenance = NAMED["partition"].provenance

    def current_name(self, dataset_urn: str, partition: str) -> str:
        return f"{dataset_urn.partition('@')[0]}@{partition}"


def test_dataset_rebuilt_under_a_new_name_is_read_with_the_columns_of_its_old_name() -> None:
    """The log that contains one of the two partitions is damaged."""
    machine, source = Machine(), _Partitions(NAMED["partition"].datasets)
    run_pinned(KEEPS, machine, ModelSource({"t": ModelDataset({"0": 1, "1": 1})}), named("topic"))
    rebucket(KEEPS.store(machine), renames("partition"), new_run_id(), lambda step: None)
    run_pinned(KEEPS, machine, source, named("partition"))
    store = KEEPS.store(machine)
    log = store.bucket_log(store.bucket_of("t@1")).folder
    assert log != store.bucket_log(store.bucket_of("t")).folder
    replace_files(machine, log, dict.fromkeys(machine.paths(log), b"{"))
    flow = KEEPS.flow(source, KEEPS.files)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False, flow=flow)
    rebuilt = rebuild_store(store, plan, "rebuild-1", "me", accept_gaps=False, flow=flow)
    assert rebuilt.written
    settings = KEEPS.begin(machine, ModelSource({"t@1": ModelDataset({"1": 4})}))
    result = run(launch_here, settings, fixed=named("partition"))
    assert result.succeeded, result.reasons.entries
    (ids,) = stored_states(store)["t@1"].schemas.values()
    assert [number // 1000 for number in ids] == [rebuilt.epoch], "schema ids must come from the rebuild"


def _documents(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "store" / "schemas").glob("*/*/*.json"))
    return [json.loads(path.read_text().rpartition("xxh3 ")[0]) for path in paths]
