"""Reprocessing rejected records: where each record ends, which error files are superseded, and when they are
deleted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from distcommit.app.auditing.audit import AuditResult
from distcommit.app.migration.compare_outputs import compare_outputs
from distcommit.constructs.checkers.record_counts import FractionRejected
from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import ERRORS
from distcommit.engine.driver.run import RunResult
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.maintenance.published_files import PublishedFiles
from distcommit.pipeline.task_flow import Check, TaskFlow
from distcommit.protocol.paths.output import is_tombstone, published_folder, tombstone_path
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.stores.folders.tombstones import SupersededFile, Tombstone, read_tombstone
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import ByValue, TurningAway
from tests.simulation.world import SimulatedFileSystem, World
from tests.unit.engine.driver.machines import NOTHING, OUTPUT, Machine, audit, dies, go, source, states
from tests.unit.engine.driver.test_custom_sinks import MemorySink

A = source(a=4)
BAD = World(flow=TurningAway(frozenset({"a/0/1", "a/0/2"})))
HALF = World(flow=TurningAway(frozenset({"a/0/2"})))
GOOD = World(flow=TurningAway())


def turned_away(world: World = BAD, data: ModelSource = A) -> Machine:
    machine = Machine()
    assert go(world, machine, data).succeeded
    return machine


def again(world: World, machine: Machine, data: ModelSource = A, urn: str = "a") -> RunResult:
    return world.reprocess(machine, data, urn)


def exact(machine: Machine) -> AuditResult:
    audit_result = audit(BAD, machine)
    assert audit_result.exact, audit_result
    return audit_result


def values(machine: Machine, folder: str) -> list[str]:
    """Return the values of all files below a folder of the output, superseded or not."""
    fs = SimulatedFileSystem(machine)
    paths = [path for path in machine.paths(f"{OUTPUT}/{folder}") if path.endswith(".parquet")]
    return sorted(value for path in paths for value in read_records(fs, path).column("value").to_pylist())


def stones(machine: Machine) -> dict[str, Tombstone]:
    fs = SimulatedFileSystem(machine)
    return {path: read_tombstone(fs, path) for path in machine.paths(OUTPUT) if is_tombstone(path)}


def runs(world: World, machine: Machine, count: int, data: ModelSource = A) -> None:
    for _ in range(count):
        assert go(world, machine, data).succeeded


def test_each_reprocessed_record_is_published_or_rejected_again_and_the_watermark_stays() -> None:
    machine = turned_away()
    before = states(BAD, machine)["a"]
    result = again(HALF, machine)
    assert result.succeeded, result
    totals = result.totals
    assert (totals.records_read, totals.records_published, totals.records_rejected) == (2, 2, 1)
    assert values(machine, "a") == ["a/0/0", "a/0/1", "a/0/3"]
    after = states(BAD, machine)["a"]
    assert (after.watermark, after.done_epoch) == (before.watermark, result.epoch)
    audit_result = exact(machine)
    assert (audit_result.records, audit_result.rejected, audit_result.superseded_files) == (3, 1, 2)
    (stone,) = stones(machine).values()
    assert (stone.records_reprocessed, stone.records_written, stone.records_rejected, stone.base) == (
        2,
        1,
        1,
        before.done_epoch,
    )
    assert [file.records for file in stone.files] == [2]


def test_file_count_excludes_the_tombstone_and_content_sums_match_the_log() -> None:
    machine = turned_away()
    first = states(BAD, machine)["a"].done_epoch
    assert again(HALF, machine).totals.files_published == 2
    path = max(path for path in machine.paths(f"{OUTPUT}/a"))
    footer = read_footer(SimulatedFileSystem(machine), path)
    assert footer is not None
    assert footer.replaces == (first,)
    assert not audit(BAD, machine).altered
    data, metadata = machine.paths(f"{OUTPUT}/a")[path], footer.to_metadata()["distcommit"].encode()
    other = msgspec.structs.replace(footer, content_sum="0123456789abcdef").to_metadata()["distcommit"].encode()
    assert metadata in data
    machine.put(path, data.replace(metadata, other))
    assert audit(BAD, machine).altered_count == 2, "the content sums of its records and of the sequence"


def test_superseded_error_files_are_deleted_by_the_following_run_and_then_the_tombstone() -> None:
    machine = turned_away()
    again(HALF, machine)
    machine.made.clear()
    runs(HALF, machine, 1)
    deleted = [
        call.path.rpartition(".")[2] for call in machine.made if call.kind == "unlink" and "_rejected" in call.path
    ]
    assert deleted == ["parquet", "tombstone"]
    assert values(machine, "_rejected/a") == ["a/0/2"]
    assert exact(machine).superseded_files == 0
    runs(HALF, machine, 2)
    assert exact(machine).rejected == 1


def test_reprocessed_records_can_be_reprocessed_again() -> None:
    machine = turned_away()
    for world in (HALF, HALF, GOOD):
        assert again(world, machine).succeeded
        exact(machine)
    assert values(machine, "a") == ["a/0/0", "a/0/1", "a/0/2", "a/0/3"]
    runs(GOOD, machine, 2)
    assert (exact(machine).rejected, exact(machine).superseded_files) == (0, 0)
    assert "no live error file" in again(GOOD, machine).reasons.entries[0].text


def test_files_of_a_dead_reprocess_run_stay_and_later_runs_raise_no_alarm() -> None:
    machine = turned_away()
    machine.faults.append(dies("rename", "output/.distcommit/", 2))
    with pytest.raises(Crashed):
        again(HALF, machine)
    machine.restart()
    (stone,) = stones(machine).values()
    assert states(BAD, machine)["a"].done_epoch == stone.epoch, "the run died after DONE, before its end marker"
    machine.faults.append(dies("rename", "output/.distcommit/", 2))
    with pytest.raises(Crashed):
        go(HALF, machine, A)
    machine.restart()
    assert len(stones(machine)) == 1
    assert values(machine, "_rejected/a") == ["a/0/1", "a/0/2", "a/0/2"]
    runs(HALF, machine, 1)
    assert len(stones(machine)) == 1, "that run recorded the previous one as dead"
    runs(HALF, machine, 1)
    assert exact(machine).superseded_files == 0


def test_files_of_a_sequence_that_is_not_done_stay_however_many_runs_have_ended() -> None:
    machine = turned_away()

    def fault(operation: Operation) -> None:
        is_record = operation.kind == "rename" and "/log/bucket" in operation.path
        if is_record and any(map(is_tombstone, machine.paths(OUTPUT))):
            raise Crashed

    machine.faults.append(fault)
    with pytest.raises(Crashed):
        again(HALF, machine)
    machine.restart()
    operator_actions.quarantine(BAD.store(machine), "a", "me")
    for _ in range(3):
        go(HALF, machine, A)
    assert len(stones(machine)) == 1
    operator_actions.abandon(BAD.store(machine), "a", "me")
    assert (exact(machine).rejected, exact(machine).superseded_files) == (2, 0)
    runs(HALF, machine, 2)
    assert exact(machine).rejected == 2


def test_interrupted_deletion_of_superseded_files_is_resumed() -> None:
    data = ModelSource({"a": ModelDataset({"0": 4}, units=2)})
    machine = turned_away(data=data)
    again(GOOD, machine)
    machine.faults.append(dies("unlink", "_rejected", 2))
    with pytest.raises(Crashed):
        go(GOOD, machine, data)
    machine.restart()
    assert exact(machine).superseded_files == 2, "one of two files, and the tombstone"
    runs(GOOD, machine, 2, data)
    assert exact(machine).superseded_files == 0


def test_superseded_name_with_other_bytes_and_its_tombstone_stay() -> None:
    machine = turned_away()
    again(GOOD, machine)
    (stone,) = stones(machine).values()
    path = f"{OUTPUT}/{stone.files[0].path}"
    machine.put(path, b"x" * stone.files[0].size_bytes)
    runs(GOOD, machine, 1)
    assert path in machine.paths(OUTPUT)
    assert len(stones(machine)) == 1
    assert exact(machine).superseded_files == 2


FORKED = TurningAway(branches={"x": frozenset({"a/0/1", "a/0/2"}), "y": frozenset({"a/0/2"})})


def forked(flow: TurningAway) -> World:
    return World(flow=flow)


def test_record_goes_only_to_the_branch_that_rejected_it() -> None:
    machine = turned_away(forked(FORKED))
    assert values(machine, "a/y") == ["a/0/0", "a/0/1", "a/0/3"]
    assert again(forked(replace(FORKED, branches={"x": frozenset(), "y": frozenset()})), machine).succeeded
    everything = [f"a/0/{n}" for n in range(4)]
    assert (values(machine, "a/x"), values(machine, "a/y")) == (everything, everything)
    exact(machine)
    assert {stone.branch for stone in stones(machine).values()} == {"x", "y"}, "each branch supersedes its own"
    runs(GOOD, machine, 2)
    assert (exact(machine).rejected, exact(machine).superseded_files) == (0, 0)


def test_record_now_rejected_before_the_fork_stays_an_error_of_its_branch_alone() -> None:
    machine = turned_away(forked(FORKED))
    assert again(forked(replace(FORKED, values=frozenset({"a/0/1"}))), machine).succeeded
    exact(machine)
    assert "a/0/1" in values(machine, "_rejected/a/x")
    assert "a/0/1" in values(machine, "a/y")


def test_record_now_routed_elsewhere_stays_an_error_of_its_branch() -> None:
    machine = turned_away(forked(FORKED))
    now = TurningAway(branches={"x": frozenset(), "y": frozenset()}, fork=ByValue({"x": frozenset({"a/0/1"})}))
    assert again(forked(now), machine).succeeded
    exact(machine)
    assert values(machine, "a/x") == ["a/0/0", "a/0/2", "a/0/3"]
    assert again(forked(now), machine).succeeded, "and can be reprocessed again"
    exact(machine)


def test_record_rejected_before_the_fork_goes_to_all_branches_including_new_ones() -> None:
    before = TurningAway(frozenset({"a/0/1"}), branches={"x": frozenset(), "y": frozenset()})
    machine = turned_away(forked(before))
    now = TurningAway(branches={"x": frozenset(), "z": frozenset()})
    assert again(forked(now), machine).succeeded
    assert ("a/0/1" in values(machine, "a/x"), values(machine, "a/z")) == (True, ["a/0/1"])
    exact(machine)


def test_errors_of_a_removed_branch_are_left_alone_and_reported() -> None:
    machine = turned_away(forked(FORKED))
    before = machine.paths(OUTPUT)
    result = again(forked(TurningAway(branches={"y": frozenset()})), machine)
    assert not result.succeeded
    assert "a branch that is not in the job file" in result.reasons.entries[0].text
    assert machine.paths(OUTPUT) == before


def test_filtered_counts_of_a_superseded_file_are_preserved() -> None:
    all_bad = TurningAway(frozenset({"a/0/0", "a/0/1"}), frozenset({"a/0/2", "a/0/3"}))
    machine = turned_away(World(flow=all_bad))
    assert exact(machine).filtered == 2, "only the error file can record it"
    assert again(World(flow=TurningAway(frozenset({"a/0/1"}))), machine).succeeded
    runs(GOOD, machine, 2)
    audit_result = exact(machine)
    assert (audit_result.filtered, audit_result.rejected, audit_result.superseded_files, audit_result.records) == (
        2,
        1,
        0,
        1,
    )


def test_reprocessed_records_without_output_count_as_filtered_not_as_a_gap() -> None:
    machine = turned_away()
    assert again(World(flow=TurningAway(dropped=frozenset({"a/0/1", "a/0/2"}))), machine).succeeded
    runs(GOOD, machine, 2)
    audit_result = exact(machine)
    assert (audit_result.filtered, audit_result.rejected, audit_result.superseded_files, audit_result.records) == (
        2,
        0,
        0,
        2,
    )
    assert "no live error file" in again(GOOD, machine).reasons.entries[0].text


def test_record_that_fails_the_work_unit_leaves_everything_unchanged() -> None:
    class Failing(TurningAway):
        def __call__(self, source: object, sink: object) -> object:  # type: ignore[override]
            flow = TurningAway.__call__(self, source, sink)  # type: ignore[arg-type]
            return replace(flow, stages=[replace(stage, on_failure="fail") for stage in flow.stages])

    machine = turned_away()
    before = values(machine, "_rejected/a")
    result = again(World(flow=Failing(frozenset({"a/0/2"}))), machine)  # type: ignore[arg-type]
    assert not result.succeeded
    assert (values(machine, "_rejected/a"), stones(machine)) == (before, {})
    exact(machine)


@pytest.mark.parametrize("urn", ["unknown", "b"])
def test_dataset_without_errors_is_reported_and_nothing_is_written(urn: str) -> None:
    data = source(a=4, b=2)
    machine = turned_away(data=data)
    before = machine.paths(OUTPUT)
    result = again(GOOD, machine, data, urn)
    assert not result.succeeded
    assert [reason.subject for reason in result.reasons.entries] == [urn]
    assert machine.paths(OUTPUT) == before


def test_sink_without_files_receives_the_records_as_one_more_commit() -> None:
    machine, sink = Machine(), MemorySink()
    assert BAD.run(machine, A, sink=sink).succeeded
    assert HALF.reprocess(machine, A, "a", sink=sink).succeeded
    assert HALF.reprocess(machine, A, "a", sink=sink).succeeded
    assert sink.rows == {"a": ["a/0/0", "a/0/3", "a/0/1"]}
    assert GOOD.reprocess(machine, A, "a", sink=sink).succeeded
    assert sorted(sink.rows["a"]) == ["a/0/0", "a/0/1", "a/0/2", "a/0/3"]
    assert not GOOD.reprocess(machine, A, "a", sink=sink).succeeded


def test_ingestion_resumes_at_its_watermark_after_reprocessing() -> None:
    machine = turned_away()
    again(HALF, machine)
    assert go(HALF, machine, source(a=6)).succeeded
    assert states(BAD, machine)["a"].watermark == Watermark({"0": 6})
    assert exact(machine).records == 5


def test_outputs_are_equal_with_and_without_reprocessing() -> None:
    machine, other = turned_away(), turned_away(GOOD)
    again(GOOD, machine)
    runs(GOOD, machine, 2)
    flow = BAD.flow(source(), BAD.files)
    assert compare_outputs(BAD.store(machine), flow, BAD.store(other), flow).is_equal


# ---- invalid tombstones


def put(machine: Machine, stone: Tombstone) -> str:
    path = f"{OUTPUT}/{tombstone_path('a', stone.epoch, stone.work_unit_id, stone.attempt)}"
    machine.put(path, encode_document(stone))
    return path


def fed_again() -> tuple[Machine, Tombstone]:
    machine = turned_away()
    again(HALF, machine)
    (stone,) = stones(machine).values()
    return machine, stone


def test_tombstone_above_the_done_epoch_supersedes_nothing_and_is_reported() -> None:
    machine, stone = fed_again()
    error = max(path for path in machine.paths(f"{OUTPUT}/_rejected/a") if path.endswith(".parquet"))
    file = SupersededFile(error.removeprefix(f"{OUTPUT}/"), 1, "0" * 16, 1)
    put(machine, msgspec.structs.replace(stone, epoch=9, files=(file,)))
    audit_result = audit(BAD, machine)
    assert (audit_result.exact, audit_result.gaps, audit_result.unknown_files_count) == (False, 0, 1)
    assert "epoch 9, no sequence" in audit_result.unknown_files[0]
    runs(HALF, machine, 2)
    assert error in machine.paths(OUTPUT)


def test_file_superseded_by_two_tombstones_is_reported() -> None:
    machine, stone = fed_again()
    put(machine, msgspec.structs.replace(stone, attempt="f" * 32))
    audit_result = audit(BAD, machine)
    assert not audit_result.exact
    assert f"superseded 2 times, by tombstones of epochs {stone.epoch}, {stone.epoch}" in audit_result.unknown_files[0]


@pytest.mark.parametrize("path", ["a/x.parquet", "_rejected/b/x.parquet", "_rejected/a/../../x", "/etc/passwd"])
def test_tombstone_that_names_a_foreign_file_is_reported_and_ignored(path: str) -> None:
    machine, stone = fed_again()
    machine.put(f"{OUTPUT}/_rejected/b/x.parquet", b"x")
    own = put(machine, msgspec.structs.replace(stone, attempt="f" * 32, files=(SupersededFile(path, 1, "0" * 16, 1),)))
    assert any("a tombstone is invalid" in text for text in audit(BAD, machine).unknown_files)
    result = go(HALF, machine, A)
    assert ("a", "superseded files stay") in [(note.subject, note.kind) for note in result.notes.entries]
    assert {own, f"{OUTPUT}/_rejected/b/x.parquet"} <= machine.paths(OUTPUT).keys()


def test_tombstone_above_the_done_epoch_does_not_prevent_reprocessing() -> None:
    machine, stone = fed_again()
    error = max(path for path in machine.paths(f"{OUTPUT}/_rejected/a") if path.endswith(".parquet"))
    file = SupersededFile(error.removeprefix(f"{OUTPUT}/"), 1, "0" * 16, 1)
    put(machine, msgspec.structs.replace(stone, epoch=9, files=(file,)))
    assert again(GOOD, machine).totals.records_read == 1


def test_error_file_above_the_done_epoch_is_not_reprocessed() -> None:
    machine, other = turned_away(), Machine()
    for _ in range(3):
        go(BAD, other, NOTHING)
    go(BAD, other, A)
    (stray,) = other.paths(f"{OUTPUT}/_rejected/a").items()
    machine.put(*stray)
    assert again(GOOD, machine).totals.records_read == 2
    assert stray[0] in machine.paths(OUTPUT)


def test_superseded_file_that_still_exists_is_not_reprocessed_again() -> None:
    machine = turned_away()
    machine.faults.append(dies("rename", "output/.distcommit/", 2))
    with pytest.raises(Crashed):
        again(HALF, machine)
    machine.restart()
    assert again(HALF, machine).totals.records_read == 1
    assert exact(machine).superseded_files == 4, "no file was deleted, because the previous run died"


def test_later_branches_do_not_receive_records_that_others_rejected() -> None:
    machine = turned_away(forked(FORKED))
    now = TurningAway(branches={"x": frozenset(), "y": frozenset(), "z": frozenset()})
    assert again(forked(now), machine).succeeded
    assert values(machine, "a/z") == []
    assert all(row.gaps == 0 for row in exact(machine).partitions)
    runs(forked(now), machine, 2)
    exact(machine)


def few_rejected(source: Source, sink: Sink) -> TaskFlow:
    """Reject `a/0/2`, and require that at most a quarter of the records are rejected."""
    flow = TurningAway(frozenset({"a/0/2"}))(source, sink)
    check = Check("fraction_rejected", FractionRejected(type="fraction_rejected", max=0.25))
    return replace(flow, branches=(replace(flow.branches[0], checks=(check,)),))


def test_task_checkers_only_report_while_reprocessing() -> None:
    machine = turned_away()
    result = again(World(flow=few_rejected), machine)
    assert result.succeeded, result
    assert [note.kind for note in result.notes.entries] == ["check"]
    assert values(machine, "a") == ["a/0/0", "a/0/1", "a/0/3"]
    exact(machine)


def test_all_datasets_with_errors_are_reprocessed_in_one_run() -> None:
    data, bad = source(a=4, b=2, c=2, d=2), frozenset({"a/0/1", "a/0/2", "b/0/0", "d/0/1"})
    world = World(buckets=2, flow=TurningAway(bad))
    machine = turned_away(world, data)
    operator_actions.set_watermark(world.store(machine), "d", None, "person")
    before = states(world, machine)
    result = again(replace(world, flow=TurningAway(frozenset({"a/0/2"}))), machine, data, "")
    assert result.succeeded, result
    assert (result.totals.records_read, result.totals.records_rejected) == (3, 1)
    assert values(machine, "a") + values(machine, "b") == ["a/0/0", "a/0/1", "a/0/3", "b/0/0", "b/0/1"]
    after = states(world, machine)
    assert [urn for urn in "abcd" if after[urn] != before[urn]] == ["a", "b"]
    assert len(stones(machine)) == 2
    assert again(GOOD, turned_away(GOOD, data), data, "").totals.records_read == 0


def test_dataset_that_cannot_be_reprocessed_does_not_block_others() -> None:
    data = source(a=2, b=2)
    world = World(buckets=2, flow=TurningAway(branches={"left": frozenset({"a/0/1"}), "right": frozenset({"b/0/1"})}))
    machine = turned_away(world, data)
    result = again(replace(world, flow=TurningAway(branches={"right": frozenset()})), machine, data, "")
    assert not result.succeeded
    assert ["a branch that is not in the job file" in reason.text for reason in result.reasons.entries] == [True]
    assert values(machine, "b/right") == ["b/0/0", "b/0/1"]


@pytest.mark.parametrize("data", [b"", b"truncated"])
def test_published_file_without_a_footer_is_an_error_and_not_omitted(tmp_path: Path, data: bytes) -> None:
    name = f"{'3'.zfill(10)}-00001_000001-{'a' * 32}-0001.jsonl.gz"
    path = tmp_path / published_folder("a", ERRORS) / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="it has no footer") as caught:
        list(PublishedFiles(LocalFileSystem(), str(tmp_path), "a", 3).live_in(ERRORS))
    assert caught.value.ids["path"] == str(path)
