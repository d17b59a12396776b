"""Tables whose rows have a text each: what is short is never folded, however narrow the terminal is."""

from __future__ import annotations

import io

import pytest
from msgspec import structs
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from distcommit.app.looking.runs import RunRow, RunsResult, RunStatus
from distcommit.app.looking.status import StatusResult
from distcommit.cli.runs_view import runs_view
from distcommit.cli.status_view import status_view
from distcommit.cli.views import ExplainedTable
from tests.golden import samples

WHY = "SourceError: the brokers can't be reached; expected an answer within 30 s; found none at all"


def lines(view: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, record=True, highlight=False)
    console.print(view, crop=False)
    return [line.rstrip() for line in console.export_text().splitlines()]


def table(*names: str, why: str = WHY) -> ExplainedTable:
    found = ExplainedTable("dataset", "status", ">records", explained="why")
    for name in names:
        found.add_row(name, Text("quarantined"), "1,234", why=why if name != "well" else "")
    return found


def test_texts_are_beside_their_rows_where_there_is_room_and_else_below() -> None:
    wide, narrow = lines(table("orders", "well"), 140), lines(table("orders", "well"), 60)
    assert wide[0].split() == ["dataset", "status", "records", "why"]
    assert (len(wide), WHY in wide[2]) == (4, True)
    assert narrow[0].split() == ["dataset", "status", "records"]
    assert narrow[2].split() == ["orders", "quarantined", "1,234"]
    assert " ".join(line.strip() for line in narrow[3:5]) == WHY
    assert all(line.startswith("    ") for line in narrow[3:5])
    assert narrow[5].split() == ["well", "quarantined", "1,234"]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("name", ["orders", "x" * 200, "注文" * 40, "a\tb"])
def test_no_line_is_too_long_and_columns_stand_below_each_other(name: str, width: int) -> None:
    found = lines(table(name, "well"), width)
    assert max(map(cell_len, found)) <= width
    rows = [line for line in found if "quarantined" in line]
    assert len(rows) == 2
    assert len({cell_len(row[: row.index("quarantined")]) for row in rows}) == 1
    assert len({cell_len(row[: row.index("1,234")]) for row in rows}) == 1


def test_columns_that_there_is_no_room_for_are_told_below_their_rows() -> None:
    found = ExplainedTable("dataset", "status", ">records read", ">MB read", ">rejected", explained="why")
    found.add_row("orders", "idle", "1,234", "5.6", "", why="late")
    found.add_row("clicks", "idle", "", "", "")
    assert [line.split() for line in lines(found, 40)] == [
        ["dataset", "status", "records", "read"],
        ["─" * 31],
        ["orders", "idle", "1,234"],
        ["MB", "read", "5.6;", "late"],
        ["clicks", "idle"],
    ]


def test_without_texts_there_is_no_column_for_them() -> None:
    assert lines(table("well"), 140)[0].split() == ["dataset", "status", "records"]


def test_a_job_whose_runs_find_nothing_says_where_to_look() -> None:
    found = StatusResult("job", "/store", 64, 2, "run", [], {}, last_run=samples.RUN_RECORD)
    where = "look at what `source` names"
    assert where in " ".join(lines(status_view(found), 200))
    assert where not in " ".join(lines(status_view(structs.replace(found, last_run=None)), 200))
    assert where not in " ".join(lines(status_view(structs.replace(found, counts={"idle": 1})), 200))


def test_runs_can_be_read_on_a_small_terminal() -> None:
    row = RunRow(
        1234567,
        "run",
        RunStatus.SUCCESSFUL,
        "run",
        "ann@host",
        began_ms=1_700_000_000_000,
        ended_ms=1_700_000_123_400,
        datasets_published=50_000,
        datasets_not=123,
        records_published=123_456_789,
        reason=WHY,
    )
    found = lines(runs_view(RunsResult("job", "/store", [row], 0)), 80)
    assert max(map(cell_len, found)) <= 80
    assert " ".join(found[2].split()) == "1234567 SUCCESSFUL 2023-11-14 22:13 123.4 s 50,000 123 123,456,789"
