"""Of sources without offsets the audit counts what was rejected and filtered, by the files that say so."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.auditing.audit_rows import CountedRow
from distcommit.cli.views.audit_view import audit_view
from distcommit.core.provenance import Provenance
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.turning_away import ByValue, TurningAway
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine
from tests.unit.engine.driver.test_own_sinks import MemorySink

BAD, DROPPED = frozenset({"a/0/1", "a/0/2"}), frozenset({"a/0/0", "b/0/0"})


@dataclass(frozen=True, slots=True)
class WithoutOffsets(ModelSource):
    """Its records do not say where they came from."""

    @property
    def provenance(self) -> Provenance | None:  # type: ignore[override]
        return None


DATA = WithoutOffsets({"a": ModelDataset({"0": 6}, units=2), "b": ModelDataset({"0": 3})})


def run(world: World, machine: Machine, **more: Any) -> AuditResult:
    assert world.run(machine, DATA, **more).succeeded
    return audit(world, machine)


def audit(world: World, machine: Machine) -> AuditResult:
    found = audit_store(world.store(machine), None, deep=True)
    assert found.exact, found
    return found


def test_they_are_told_by_dataset_and_what_is_fed_again_is_told_as_it_is_then() -> None:
    machine, world = Machine(), World(flow=TurningAway(BAD, DROPPED))
    found = run(world, machine)
    assert found.counted == [CountedRow("a", "main", 2, {"dropped": 1}), CountedRow("b", "main", 0, {"dropped": 1})]
    assert (found.rejected, found.filtered, found.records, found.partitions) == (2, 2, 9 - 4, [])
    again = World(flow=TurningAway(frozenset({"a/0/1"}), frozenset({"a/0/2"})))
    assert again.reprocess(machine, DATA, "a").succeeded
    found = audit(again, machine)
    assert found.counted[0] == CountedRow("a", "main", 1, {"dropped": 2}), "what was filtered before stays said"
    shown = io.StringIO()
    Console(file=shown, width=200).print(audit_view(found))
    assert "3 (left out on purpose" in shown.getvalue()
    last = World(flow=TurningAway(frozenset(), frozenset({"a/0/1"})))
    assert last.reprocess(machine, DATA, "a").succeeded
    assert audit(last, machine).counted[0] == CountedRow("a", "main", 0, {"dropped": 3}), "in a file without records"


def test_they_are_told_by_branch() -> None:
    flow = TurningAway(frozenset({"a/0/5"}), DROPPED, {"one": BAD, "two": frozenset()}, ByValue())
    found = run(World(flow=flow), Machine())
    by_branch = {row.branch: (row.rejected, row.filtered) for row in found.counted if row.dataset == "a"}
    assert by_branch == {"one": (3, 1), "two": (1, 1)}
    assert (found.rejected, found.filtered) == (3, 2), "each once, whatever the number of branches"


@pytest.mark.parametrize("bad", [BAD, frozenset()])
def test_of_a_sink_that_is_no_file_error_files_tell(bad: frozenset[str]) -> None:
    sink = MemorySink()
    world = World(flow=TurningAway(bad, DROPPED))
    found = run(world, Machine(), sink=sink)
    rows = [CountedRow("a", "main", len(bad), {"dropped": 1})] if bad else []
    assert found.counted == rows


def test_where_nothing_is_turned_away_nothing_is_told() -> None:
    found = run(World(files=FileSink(format="avro")), Machine())
    assert (found.counted, found.rejected, found.filtered) == ([], 0, 0)
