"""`resume_across_runs`: the next run commits the finished work units of a killed run, and reads only the others."""

from __future__ import annotations

import pytest
from msgspec import structs

from distcommit.core.records.log_records import Fence, Intent
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.driver.run import run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.protocol.paths.store import MANIFEST, run_id_of
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.stores.history.run_records import RunFacts
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator.operator_actions import set_watermark
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.stores.state.run_plans import read_manifest
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import killed_before_drain
from tests.simulation.world import World
from tests.unit.engine.driver.machines import STAGING, Machine, audit, go, launch

RESUMED = World(policy=CommitPolicy.SUCCESSFUL, resume_across_runs=True)
DATA = ModelSource({"a": ModelDataset({"0": 9}, units=3)})
STOPPED = ModelSource({"a": ModelDataset({"0": 9}, units=3, bad={"0": 7})})
"""Two work units are finished when the run is killed."""


def killed(world: World = RESUMED, source: ModelSource = STOPPED) -> Machine:
    machine = Machine()
    killed_before_drain(machine, world, source)
    assert world.watermarks(machine) == {}
    return machine


def test_finished_work_units_are_committed_with_the_epoch_of_the_killed_run_and_not_read_again() -> None:
    machine = killed()
    result = go(RESUMED, machine, DATA)
    assert result.succeeded
    assert result.totals.records_read == 3
    assert result.totals.sequences_replayed == 1
    assert [note.kind for note in result.notes] == ["resumed"]
    assert RESUMED.watermarks(machine) == {"a": Watermark({"0": 9})}
    epochs = [
        (segment.record.epoch, sequence.epoch, sequence.records)
        for _, segment in RESUMED.store(machine).bucket_log(0).segments()
        if not isinstance(segment, Exception) and isinstance(segment.record, Intent)
        for sequence in segment.record.sequences
    ]
    (killed_epoch,) = {sequence_epoch for _, sequence_epoch, records in epochs if records == 6}
    assert killed_epoch < result.epoch
    assert epochs == [(result.epoch, killed_epoch, 6), (result.epoch, result.epoch, 3)]
    assert audit(RESUMED, machine).exact


@pytest.mark.parametrize("world", [World(policy=CommitPolicy.SUCCESSFUL), World(resume_across_runs=True)])
def test_finished_work_units_are_read_again_without_the_setting_and_with_policy_full(world: World) -> None:
    machine = killed(world)
    assert go(world, machine, DATA).totals.records_read == 9
    assert audit(world, machine).exact


def test_partial_prefix_of_a_killed_run_is_committed_with_policy_partial() -> None:
    world = World(policy=CommitPolicy.PARTIAL, resume_across_runs=True)
    machine = killed(world)
    assert go(world, machine, DATA).totals.records_read == 2
    assert audit(world, machine).exact


def test_watermark_set_by_an_operator_discards_the_finished_work_units() -> None:
    machine = killed()
    set_watermark(RESUMED.store(machine), "a", Watermark({"0": 3}), "person")
    result = go(RESUMED, machine, DATA)
    assert (result.totals.records_read, result.totals.sequences_replayed) == (6, 0)
    assert audit(RESUMED, machine).exact


def test_work_unit_whose_file_is_missing_is_read_again_with_all_behind_it() -> None:
    machine = killed()
    second = sorted(path for path in machine.paths(STAGING) if path.endswith(".parquet"))[1]
    machine.remove(second)
    result = go(RESUMED, machine, DATA)
    assert (result.totals.records_read, result.totals.sequences_replayed) == (6, 1)
    assert audit(RESUMED, machine).exact


@pytest.mark.parametrize("file", ["plans", "task_states", "runs"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_unreadable_record_of_the_killed_run_loses_no_record(file: str, is_missing: bool) -> None:
    machine = killed()
    for path, data in machine.paths(f"/job/store/{file}").items():
        machine.remove(path)
        if not is_missing:
            machine.put(path, data[:-9])
    result = go(RESUMED, machine, DATA)
    assert result.succeeded
    assert result.totals.records_read == 9
    assert audit(RESUMED, machine).exact


def test_plan_of_another_version_is_not_resumed(caplog: pytest.LogCaptureFixture) -> None:
    machine = killed()
    (path,) = (path for path in machine.paths("/job/store/plans") if path.endswith(MANIFEST))
    store = RESUMED.store(machine)
    manifest = read_manifest(store.fs, store.roots.store, run_id_of(path.split("/")[-2]))
    machine.remove(path)
    machine.put(path, encode_document(structs.replace(manifest, version=99)))
    assert go(RESUMED, machine, DATA).totals.records_read == 9
    assert "is not resumed: FORMAT_VERSION_UNKNOWN" in caplog.text
    assert audit(RESUMED, machine).exact


@pytest.mark.parametrize("facts", [RunFacts({"job": "changed"}), RunFacts(settings_digest="changed")])
def test_run_of_another_job_file_is_not_resumed(facts: RunFacts) -> None:
    machine = killed()
    settings = RESUMED.begin(machine, DATA)
    with recorded_run(settings, "run", "person", facts=facts) as observer:
        result = run(launch, settings, observer=observer)
        end_run(settings.store, settings.epoch, clean=True)
    assert result.totals.records_read == 9
    assert audit(RESUMED, machine).exact
    assert go(RESUMED, machine, DATA).succeeded
    assert machine.paths(STAGING) == {}


def test_staged_files_of_a_resumed_run_stay_until_the_run_after_it() -> None:
    machine = killed()
    assert go(RESUMED, machine, DATA).succeeded
    assert go(RESUMED, machine, DATA).succeeded
    assert machine.paths(STAGING) == {}


def test_run_that_resumes_a_killed_run_can_itself_be_resumed() -> None:
    machine = killed()
    more = ModelSource({"a": ModelDataset({"0": 18}, units=3, bad={"0": 15})})
    killed_before_drain(machine, RESUMED, more)
    assert RESUMED.watermarks(machine) == {"a": Watermark({"0": 6})}
    result = go(RESUMED, machine, ModelSource({"a": ModelDataset({"0": 18}, units=3)}))
    assert result.totals.records_read == 4
    assert audit(RESUMED, machine).exact


def test_loss_of_the_sealed_work_is_noticed_by_every_later_run() -> None:
    """The run that resumes dies after it has published; then the bucket's log loses all segments behind its fence."""
    machine = killed()
    settings = RESUMED.begin(machine, DATA)
    with recorded_run(settings, "run", "person"):
        assert recover_partition(settings, 0).report.counts.sequences_replayed == 1
    log = RESUMED.store(machine).bucket_log(0)
    fence = max(
        number
        for number, segment in log.segments()
        if not isinstance(segment, Exception) and isinstance(segment.record, Fence)
    )
    for path in machine.paths(log.folder):
        if int(path.rpartition("/")[2].removesuffix(".seg")) > fence:
            machine.remove(path)
    for _ in range(2):
        result = go(RESUMED, machine, DATA)
        assert "LOG_TAIL_LOST" in {reason.kind for reason in result.reasons}
        assert result.totals.records_read == 0
    assert not audit(RESUMED, machine).duplicates
