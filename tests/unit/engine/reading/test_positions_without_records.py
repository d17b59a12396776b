"""Positions without a record, lost positions, and recreated sources: what is recorded of them."""

from __future__ import annotations

from distcommit.app.inspection.job_status import read_status
from distcommit.core.work_units import SkippedRange
from distcommit.sinks.files.footer import read_footer
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, audit, go, published, states

WORLD = World()
HOLES = {"0": frozenset({0, 1, 3, 5})}
DATA = ModelSource({"a": ModelDataset({"0": 6}, units=3, holes=HOLES)})


def test_holes_are_named_by_files_and_by_the_log_where_no_file_exists() -> None:
    machine = Machine()
    go(WORLD, machine, DATA)
    audit_result = audit(WORLD, machine)
    assert (audit_result.exact, audit_result.records, audit_result.holes, audit_result.gaps, audit_result.skipped) == (
        True,
        2,
        4,
        0,
        0,
    )
    fs, named = WORLD.store(machine).fs, OffsetSets()
    for path in published(machine):
        footer = read_footer(fs, path)
        assert footer is not None
        named.update(OffsetSets.from_text(footer.holes))
    assert list(named.offsets("0")) == [3, 5]
    logged = [SkippedRange("0", 0, 2, "no record", True)]
    assert list(states(WORLD, machine)["a"].skipped) == logged
    assert read_status(WORLD.store(machine)).datasets[0].positions_lost == 0


def test_deleted_file_leaves_a_gap_at_its_holes_too() -> None:
    machine = Machine()
    go(WORLD, machine, DATA)
    fs = WORLD.store(machine).fs
    for path in published(machine):
        fs.delete(path)
    audit_result = audit(WORLD, machine)
    assert (audit_result.exact, audit_result.holes, audit_result.gaps) == (False, 2, 4)


def test_lost_positions_are_counted_in_report_status_and_audit() -> None:
    machine = Machine()
    go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 3})}))
    result = go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 9}, expired={"0": 7})}))
    assert result.totals.positions_lost == 4
    assert read_status(WORLD.store(machine)).datasets[0].positions_lost == 4
    audit_result = audit(WORLD, machine)
    assert (audit_result.exact, audit_result.records, audit_result.skipped, audit_result.holes) == (True, 5, 4, 0)


def test_recreated_source_starts_from_scratch_and_is_audited_separately() -> None:
    machine = Machine()
    go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 3}, incarnation="one")}))
    go(WORLD, machine, ModelSource({"a": ModelDataset({"0": 9}, incarnation="one", expired={"0": 5})}))
    again = ModelSource({"a": ModelDataset({"0": 8}, incarnation="two")})
    refused = go(WORLD, machine, again)
    assert (refused.totals.datasets_skipped, refused.totals.records_published) == (1, 0)
    operator_actions.set_watermark(WORLD.store(machine), "a", None, "person")
    before = published(machine)
    assert go(WORLD, machine, again).totals.records_published == 8
    assert WORLD.watermarks(machine)["a"].incarnation == "two"
    audit_result = audit(WORLD, machine)
    assert (audit_result.exact, audit_result.earlier_incarnations, audit_result.duplicates, audit_result.skipped) == (
        True,
        2,
        0,
        2,
    )
    for path in published(machine) - before:
        WORLD.store(machine).fs.delete(path)
    assert audit(WORLD, machine).gaps == 8, "losses of the first source excuse nothing now"
