"""An audit that reports "exact" has compared the output with what the store sealed last, after any operator action."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from distcommit.app.admin.watermarks import set_watermark
from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.errors import ConfigurationError
from distcommit.core.watermark import Watermark
from distcommit.core.work import positions_lost
from distcommit.engine.driver.run import run
from distcommit.pipeline.maintenance.reprocess import ReprocessSource
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.logs.fencing import end_run
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.turning_away import TurningAway
from tests.simulation.world import World
from tests.unit.app.admin.test_retain import Rejecting, aged, retain_and_delete
from tests.unit.app.job_file.test_readers import Place
from tests.unit.engine.driver.machines import Machine, audit, go, published, source, states

WORLD = World()
ONE = "incarnation one"


def counting_in(end: int, incarnation: str = ONE) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": end}, incarnation=incarnation)})


def sets(machine: Machine, source: ModelSource, at: int | None) -> None:
    """The operator sets the watermark of dataset a, as the command does."""
    set_watermark(WORLD.store(machine), source, "a", None if at is None else {"0": at}, "operator", new=False)


def first_file(machine: Machine) -> str:
    return min(published(machine))


def test_positions_set_to_what_they_are_keep_the_incarnation_so_that_a_recreated_source_is_refused() -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    sets(machine, counting_in(5), 5)
    assert states(WORLD, machine)["a"].watermark == Watermark({"0": 5}, ONE)
    recreated = go(WORLD, machine, counting_in(9, "incarnation two"))
    assert (recreated.succeeded, recreated.totals.records_published) == (False, 0)
    assert audit(WORLD, machine).exact


def test_positions_of_a_recreated_source_are_refused_until_the_watermark_is_null() -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    again = counting_in(4, "incarnation two")
    with pytest.raises(ConfigurationError, match="recreated since"):
        sets(machine, again, 2)
    sets(machine, again, None)
    sets(machine, again, 2)
    assert states(WORLD, machine)["a"].watermark == Watermark({"0": 2}, "incarnation two")
    assert go(WORLD, machine, again).totals.records_published == 2
    assert audit(WORLD, machine).exact


@pytest.mark.parametrize("at", [5, 7, None])
def test_the_audit_is_exact_after_a_watermark_was_set_and_misses_files_that_go_afterwards(at: int | None) -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    sets(machine, counting_in(9), at)
    assert audit(WORLD, machine).exact
    machine.remove(first_file(machine))
    lacking = audit(WORLD, machine)
    assert (lacking.exact, lacking.gaps) == (False, 5)


def test_positions_that_an_operator_skips_are_named_and_the_rest_is_compared() -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    sets(machine, counting_in(9), 7)
    assert go(WORLD, machine, counting_in(9)).totals.records_published == 2
    found = audit(WORLD, machine)
    assert (found.exact, found.skipped, found.gaps, found.past_watermark) == (True, 2, 0, 0)
    assert found.skipped_ranges == ["a, partition '0', 5 to 7: skipped: the watermark was set by hand (operator)"]
    machine.remove(first_file(machine))
    assert (audit(WORLD, machine).gaps, audit(WORLD, machine).skipped) == (5, 2)


def test_ranges_that_are_named_as_skipped_are_neither_published_nor_rejected() -> None:
    """The watermark is set back, and forward again beyond what is published."""
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    for at in (2, 8):
        sets(machine, counting_in(9), at)
    found = audit(WORLD, machine)
    assert (found.exact, found.skipped, found.gaps) == (True, 3, 0)
    assert found.skipped_ranges == ["a, partition '0', 5 to 8: skipped: the watermark was set by hand (operator)"]
    assert positions_lost(states(WORLD, machine)["a"].skipped) == 6, "the store does not know what is published"


def test_files_that_were_lost_are_read_again_by_a_watermark_set_back_and_the_audit_is_exact() -> None:
    machine = Machine()
    for end in (5, 9):
        go(WORLD, machine, counting_in(end))
    for path in published(machine):
        machine.remove(path)
    sets(machine, counting_in(9), 0)
    assert go(WORLD, machine, counting_in(9)).totals.records_published == 9
    assert audit(WORLD, machine).exact


def test_files_of_an_earlier_incarnation_are_missed_when_they_are_gone() -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    again = counting_in(3, "incarnation two")
    sets(machine, again, None)
    assert go(WORLD, machine, again).succeeded
    whole = audit(WORLD, machine)
    assert (whole.exact, whole.earlier_incarnations, whole.not_compared) == (True, 1, [])
    machine.remove(first_file(machine))
    assert (audit(WORLD, machine).exact, audit(WORLD, machine).gaps) == (False, 5)


@pytest.mark.parametrize("at", [-1, -(2**40)])
def test_negative_positions_are_refused(at: int) -> None:
    machine = Machine()
    go(WORLD, machine, counting_in(5))
    with pytest.raises(ConfigurationError, match="is negative"):
        sets(machine, counting_in(5), at)
    assert states(WORLD, machine)["a"].watermark == Watermark({"0": 5}, ONE)


def of_place(place: Place) -> AuditResult:
    return audit_store(place.store(), ModelSource.provenance, deep=True)


def copied(place: Place, folder: Path) -> Path:
    copy = folder / "copy-of-output"
    shutil.copytree(place.roots.output, copy)
    return copy


def put_back(place: Place, copy: Path) -> None:
    """The data of the output comes from a copy; its marks are the newest, as a copy of folders alone would leave it."""
    for path in Path(place.roots.output).iterdir():
        if path.name != ".distcommit":
            shutil.rmtree(path)
            if (copy / path.name).exists():
                shutil.copytree(copy / path.name, path)


def test_an_output_from_before_a_retention_is_noticed(tmp_path: Path) -> None:
    place = Place(tmp_path, kept=2)
    for end in (3, 5):
        place.run(end, ["a"])
    copy = copied(place, tmp_path)
    aged(place)
    retain_and_delete(place)
    assert of_place(place).exact
    put_back(place, copy)
    found = of_place(place)
    assert not found.exact
    assert "expected the replacement of epoch" in "".join(found.altered)


def test_an_output_from_before_a_replacement_is_noticed(tmp_path: Path) -> None:
    place = Place(tmp_path, publish="replace", kept=2)
    place.run(3, ["a"])
    copy = copied(place, tmp_path)
    place.run(5, ["a"])
    assert of_place(place).exact
    put_back(place, copy)
    assert not of_place(place).exact


def test_an_output_from_before_a_reprocess_is_noticed(tmp_path: Path) -> None:
    place = Rejecting(tmp_path, kept=2)
    place.run(5, ["a"])
    copy = copied(place, tmp_path)
    settings = place.begin({"a": 5})
    errors = ReprocessSource(place.fs, place.roots.output, TaskFlow.straight(settings.flow.source, FileSink()), "a")
    assert run(place.launch, replace(settings, flow=errors.flow.with_source(errors))).totals.records_published == 2
    end_run(settings.store, settings.epoch, clean=True)
    assert of_place(place).exact
    put_back(place, copy)
    assert not of_place(place).exact


def test_a_claim_or_a_mark_that_is_gone_is_noticed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.run(3, ["a"])
    folder = Path(place.roots.output) / ".distcommit"
    assert of_place(place).exact
    for path in [folder / "owner.json", *folder.glob("*-began")]:
        data = path.read_bytes()
        path.unlink()
        assert "the output as a whole" in of_place(place).altered[0], path.name
        path.write_bytes(data)
    assert of_place(place).exact


def test_a_file_of_another_job_in_the_folder_of_a_dataset_is_noticed(tmp_path: Path) -> None:
    """It takes the place of our own file with the same records, which is gone."""
    for name in ("ours", "others"):
        (tmp_path / name).mkdir()
    ours, others = Place(tmp_path / "ours"), Place(tmp_path / "others")
    for place in (ours, others):
        place.run(3, ["a"])
    (mine,) = Path(ours.roots.output, "a").rglob("*.parquet")
    (theirs,) = Path(others.roots.output, "a").rglob("*.parquet")
    mine.unlink()
    shutil.copy(theirs, mine.parent / theirs.name)
    found = of_place(ours)
    assert not found.exact
    assert "the commit log does not name it" in found.unknown_files[0]


def test_losses_and_rejected_records_count_once_whatever_the_number_of_branches() -> None:
    world = World(flow=TurningAway(frozenset({"a/0/1", "a/0/4"})))
    machine = Machine()
    go(world, machine, source(a=6))
    found = audit_store(world.store(machine), ModelSource.provenance, deep=True)
    (row,) = found.partitions
    assert (found.exact, found.records, found.rejected, row.published) == (True, 4, 2, 4)
