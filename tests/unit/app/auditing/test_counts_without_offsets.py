"""For sources without offsets, the audit counts rejected and filtered records from the files that record them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.auditing.partition_audit import CountedRow
from distcommit.cli.views.audit_view import audit_view
from distcommit.core.interfaces.provenance import Provenance
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import ByValue, TurningAway
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine
from tests.unit.engine.driver.test_custom_sinks import MemorySink

BAD, DROPPED = frozenset({"a/0/1", "a/0/2"}), frozenset({"a/0/0", "b/0/0"})


@dataclass(frozen=True, slots=True)
class WithoutOffsets(ModelSource):
    """A source whose records have no offsets."""

    @property
    def provenance(self) -> Provenance | None:  # type: ignore[override]
        return None


DATA = WithoutOffsets({"a": ModelDataset({"0": 6}, units=2), "b": ModelDataset({"0": 3})})


def run(world: World, machine: Machine, **more: Any) -> AuditResult:
    assert world.run(machine, DATA, **more).succeeded
    return audit(world, machine)


def audit(world: World, machine: Machine) -> AuditResult:
    result = audit_store(world.store(machine), None, deep=True)
    assert result.exact, result
    return result


def test_rejected_and_filtered_records_are_counted_by_dataset_and_updated_by_reprocess() -> None:
    machine, world = Machine(), World(flow=TurningAway(BAD, DROPPED))
    result = run(world, machine)
    assert result.counted_branches == [
        CountedRow("a", "main", 2, {"dropped": 1}),
        CountedRow("b", "main", 0, {"dropped": 1}),
    ]
    assert (result.rejected, result.filtered, result.records, result.partitions) == (2, 2, 9 - 4, [])
    again = World(flow=TurningAway(frozenset({"a/0/1"}), frozenset({"a/0/2"})))
    assert again.reprocess(machine, DATA, "a").succeeded
    result = audit(again, machine)
    assert result.counted_branches[0] == CountedRow("a", "main", 1, {"dropped": 2}), (
        "earlier filtered records must stay counted"
    )
    shown = io.StringIO()
    Console(file=shown, width=200).print(audit_view(result))
    assert "3 (left out on purpose" in shown.getvalue()
    last = World(flow=TurningAway(frozenset(), frozenset({"a/0/1"})))
    assert last.reprocess(machine, DATA, "a").succeeded
    assert audit(last, machine).counted_branches[0] == CountedRow("a", "main", 0, {"dropped": 3}), (
        "a file without records must count its filtered records"
    )


def test_rejected_and_filtered_records_are_counted_by_branch() -> None:
    flow = TurningAway(frozenset({"a/0/5"}), DROPPED, {"one": BAD, "two": frozenset()}, ByValue())
    result = run(World(flow=flow), Machine())
    by_branch = {row.branch: (row.rejected, row.filtered) for row in result.counted_branches if row.dataset == "a"}
    assert by_branch == {"one": (3, 1), "two": (1, 1)}
    assert (result.rejected, result.filtered) == (3, 2), "totals must count each record once, not once for each branch"


@pytest.mark.parametrize("bad", [BAD, frozenset()])
def test_rejected_records_of_a_sink_without_files_are_counted_from_error_files(bad: frozenset[str]) -> None:
    sink = MemorySink()
    world = World(flow=TurningAway(bad, DROPPED))
    result = run(world, Machine(), sink=sink)
    rows = [CountedRow("a", "main", len(bad), {"dropped": 1})] if bad else []
    assert result.counted_branches == rows


def test_no_counts_are_reported_if_no_record_is_rejected_or_filtered() -> None:
    result = run(World(files=FileSink(format="avro")), Machine())
    assert (result.counted_branches, result.rejected, result.filtered) == ([], 0, 0)
