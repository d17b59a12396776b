"""Audits that report "exact" have compared the output with the newest sealed state, after any operator action."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from distcommit.app.admin.set_watermarks import set_watermark
from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.errors import ConfigurationError
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import positions_lost
from distcommit.engine.driver.run import run
from distcommit.pipeline.maintenance.reprocess_source import ReprocessSource
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.logs.fencing import end_run
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import TurningAway
from tests.simulation.world import World
from tests.unit.app.admin.test_expire import Rejecting, aged, retain_and_delete
from tests.unit.app.reading.test_snapshot_reader import Place
from tests.unit.engine.driver.machines import Machine, audit, go, published, source, states

WORLD = World()
ONE = "incarnation one"


def counting_in(end: int, incarnation: str = ONE) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": end}, incarnation=incarnation)})


def set_positions(machine: Machine, source: ModelSource, at: int | None) -> None:
    """Set the watermark of dataset a as the operator's command does."""
    set_watermark(WORLD.store(machine), source, "a", None if at is None else {"0": at}, "operator", new=False)


def first_file(machine: Machine) -> str:
    return min(published(machine))


def test_setting_positions_to_their_current_values_keeps_the_incarnation_and_a_recreated_source_is_refused() -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    set_positions(machine, counting_in(5), 5)
    assert states(WORLD, machine)["a"].watermark == Watermark({"0": 5}, ONE)
    recreated = go(WORLD, machine, counting_in(9, "incarnation two"))
    assert (recreated.succeeded, recreated.totals.records_published) == (False, 0)
    assert audit(WORLD, machine).exact


def test_positions_of_a_recreated_source_are_refused_until_the_watermark_is_null() -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    again = counting_in(4, "incarnation two")
    with pytest.raises(ConfigurationError, match="recreated since"):
        set_positions(machine, again, 2)
    set_positions(machine, again, None)
    set_positions(machine, again, 2)
    assert states(WORLD, machine)["a"].watermark == Watermark({"0": 2}, "incarnation two")
    assert go(WORLD, machine, again).totals.records_published == 2
    assert audit(WORLD, machine).exact


@pytest.mark.parametrize("at", [5, 7, None])
def test_audit_is_exact_after_a_watermark_was_set_and_reports_files_deleted_later(at: int | None) -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    set_positions(machine, counting_in(9), at)
    assert audit(WORLD, machine).exact
    machine.remove(first_file(machine))
    lacking = audit(WORLD, machine)
    assert (lacking.exact, lacking.gaps) == (False, 5)


def test_audit_names_positions_skipped_by_an_operator_and_compares_the_rest() -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    set_positions(machine, counting_in(9), 7)
    assert go(WORLD, machine, counting_in(9)).totals.records_published == 2
    result = audit(WORLD, machine)
    assert (result.exact, result.skipped, result.gaps, result.past_watermark) == (True, 2, 0, 0)
    assert result.skipped_ranges == ["a, partition '0', 5 to 7: skipped: the watermark was set by hand (operator)"]
    machine.remove(first_file(machine))
    assert (audit(WORLD, machine).gaps, audit(WORLD, machine).skipped) == (5, 2)


def test_ranges_reported_as_skipped_exclude_published_and_rejected_records() -> None:
    """Set the watermark back, and then forward beyond the published records."""
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    for at in (2, 8):
        set_positions(machine, counting_in(9), at)
    result = audit(WORLD, machine)
    assert (result.exact, result.skipped, result.gaps) == (True, 3, 0)
    assert result.skipped_ranges == ["a, partition '0', 5 to 8: skipped: the watermark was set by hand (operator)"]
    assert positions_lost(states(WORLD, machine)["a"].skipped) == 6, "the store must count published positions too"


def test_setting_the_watermark_back_reads_lost_files_again_and_the_audit_is_exact() -> None:
    machine = Machine()
    for end in (5, 9):
        go(WORLD, machine, counting_in(end))
    for path in published(machine):
        machine.remove(path)
    set_positions(machine, counting_in(9), 0)
    assert go(WORLD, machine, counting_in(9)).totals.records_published == 9
    assert audit(WORLD, machine).exact


def test_audit_reports_missing_files_of_an_earlier_incarnation() -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    again = counting_in(3, "incarnation two")
    set_positions(machine, again, None)
    assert go(WORLD, machine, again).succeeded
    whole = audit(WORLD, machine)
    assert (whole.exact, whole.earlier_incarnations, whole.unproven_files) == (True, 1, [])
    machine.remove(first_file(machine))
    assert (audit(WORLD, machine).exact, audit(WORLD, machine).gaps) == (False, 5)


@pytest.mark.parametrize("at", [-1, -(2**40)])
def test_negative_positions_are_refused(at: int) -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    with pytest.raises(ConfigurationError, match="is negative"):
        set_positions(machine, counting_in(5), at)
    assert states(WORLD, machine)["a"].watermark == Watermark({"0": 5}, ONE)


def audited(place: Place) -> AuditResult:
    return audit_store(place.store(), ModelSource.provenance, deep=True)


def copied(place: Place, folder: Path) -> Path:
    copy = folder / "copy-of-output"
    shutil.copytree(place.roots.output, copy)
    return copy


def put_back(place: Place, copy: Path) -> None:
    """Restore the output's data from a copy and keep its newest marks, as a copy of the data folders alone would."""
    for path in Path(place.roots.output).iterdir():
        if path.name != ".distcommit":
            shutil.rmtree(path)
            if (copy / path.name).exists():
                shutil.copytree(copy / path.name, path)


def test_audit_detects_an_output_from_before_a_retention(tmp_path: Path) -> None:
    place = Place(tmp_path, kept=2)
    for end in (3, 5):
        place.run(end, ["a"])
    copy = copied(place, tmp_path)
    aged(place)
    retain_and_delete(place)
    assert audited(place).exact
    put_back(place, copy)
    result = audited(place)
    assert not result.exact
    assert "expected the replacement of epoch" in "".join(result.altered)


def test_audit_detects_an_output_from_before_a_replacement(tmp_path: Path) -> None:
    place = Place(tmp_path, publish="replace", kept=2)
    place.run(3, ["a"])
    copy = copied(place, tmp_path)
    place.run(5, ["a"])
    assert audited(place).exact
    put_back(place, copy)
    assert not audited(place).exact


def test_audit_detects_an_output_from_before_a_reprocess(tmp_path: Path) -> None:
    place = Rejecting(tmp_path, kept=2)
    place.run(5, ["a"])
    copy = copied(place, tmp_path)
    settings = place.begin({"a": 5})
    errors = ReprocessSource(place.fs, place.roots.output, TaskFlow.straight(settings.flow.source, FileSink()), "a")
    assert run(place.launch, replace(settings, flow=errors.flow.with_source(errors))).totals.records_published == 2
    end_run(settings.store, settings.epoch, clean=True)
    assert audited(place).exact
    put_back(place, copy)
    assert not audited(place).exact


def test_audit_detects_a_missing_claim_or_mark(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.run(3, ["a"])
    folder = Path(place.roots.output) / ".distcommit"
    assert audited(place).exact
    for path in [folder / "owner.json", *folder.glob("*-began")]:
        data = path.read_bytes()
        path.unlink()
        assert "the output as a whole" in audited(place).altered[0], path.name
        path.write_bytes(data)
    assert audited(place).exact


def test_audit_reports_a_file_of_another_job_in_a_dataset_folder(tmp_path: Path) -> None:
    """Replace the job's own file by another job's file with the same records."""
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    own_place, other_place = Place(tmp_path / "own"), Place(tmp_path / "other")
    for place in (own_place, other_place):
        place.run(3, ["a"])
    (own_file,) = Path(own_place.roots.output, "a").rglob("*.parquet")
    (foreign_file,) = Path(other_place.roots.output, "a").rglob("*.parquet")
    own_file.unlink()
    shutil.copy(foreign_file, own_file.parent / foreign_file.name)
    result = audited(own_place)
    assert not result.exact
    assert "files in the commit log do not include it" in result.unknown_files[0]


def test_rejected_records_count_once_whatever_the_number_of_branches() -> None:
    world = World(flow=TurningAway(frozenset({"a/0/1", "a/0/4"})))
    machine = Machine()
    go(world, machine, source(a=6))
    result = audit_store(world.store(machine), ModelSource.provenance, deep=True)
    (row,) = result.partitions
    assert (result.exact, result.records, result.rejected, row.published) == (True, 4, 2, 4)
