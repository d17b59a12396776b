"""Tables with a text for each row: short cells are never folded, however narrow the terminal is."""

from __future__ import annotations

import io

import pytest
from msgspec import structs
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from distcommit.app.inspection.dataset_list import DatasetRow, DatasetsResult
from distcommit.app.inspection.dry_runs.replay_plan import Replay, ReplayPlan, ReplayRow
from distcommit.app.inspection.job_status import DatasetStatusRow, StatusResult
from distcommit.app.inspection.open_commit_steps import SequenceSteps, StepRow, StepsResult
from distcommit.app.inspection.recorded_runs import RecordedRun, RunDatasetRow, RunRow, RunsResult, RunStatus
from distcommit.app.migration.compare_outputs import CompareResult, CompareRow
from distcommit.cli.views.datasets_view import datasets_view, steps_view
from distcommit.cli.views.migration_views import compare_view
from distcommit.cli.views.runs.dry_run_views import replay_plan_view
from distcommit.cli.views.runs.recorded_runs_view import recorded_run_view, runs_view
from distcommit.cli.views.runs.run_view_components import flow_table
from distcommit.cli.views.status_view import status_view
from distcommit.cli.views.view_components import ExplainedTable
from distcommit.core.records.run_counts import CheckCounts, FlowCounts, RunCounts
from distcommit.core.watermark import Position
from distcommit.core.work_units import ConstructCounts
from distcommit.stores.history.run_table import DatasetOutcome
from tests.golden import samples

WHY = "SourceError: the brokers can't be reached; expected an answer within 30 s; found none at all"


def lines(view: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, record=True, highlight=False)
    console.print(view, crop=False)
    return [line.rstrip() for line in console.export_text().splitlines()]


def table(*names: str, why: str = WHY) -> ExplainedTable:
    explained_table = ExplainedTable("dataset", "status", ">records", explained="why")
    for name in names:
        explained_table.add_row(name, Text("quarantined"), "1,234", reason=why if name != "well" else "")
    return explained_table


def test_row_texts_are_beside_their_rows_in_wide_and_below_them_in_narrow_terminals() -> None:
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
def test_table_fits_the_width_and_its_columns_are_aligned(name: str, width: int) -> None:
    output = lines(table(name, "well"), width)
    assert max(map(cell_len, output)) <= width
    rows = [line for line in output if "quarantined" in line]
    assert len(rows) == 2
    assert len({cell_len(row[: row.index("quarantined")]) for row in rows}) == 1
    assert len({cell_len(row[: row.index("1,234")]) for row in rows}) == 1


def test_columns_that_do_not_fit_are_printed_below_their_rows() -> None:
    explained_table = ExplainedTable("dataset", "status", ">records read", ">MB read", ">rejected", explained="why")
    explained_table.add_row("orders", "idle", "1,234", "5.6", "", reason="late")
    explained_table.add_row("clicks", "idle", "", "", "")
    assert [line.split() for line in lines(explained_table, 40)] == [
        ["dataset", "status", "records", "read"],
        ["─" * 31],
        ["orders", "idle", "1,234"],
        ["MB", "read", "5.6;", "late"],
        ["clicks", "idle"],
    ]


def test_table_without_row_texts_has_no_column_for_them() -> None:
    assert lines(table("well"), 140)[0].split() == ["dataset", "status", "records"]


LONG = "tracking.events.page-views.europe"
PLAN = ReplayPlan(
    "job", [ReplayRow(LONG, 1234, Replay.QUARANTINES, 12, 3, 123_456, WHY)], {"quarantines": 1}, {}, False
)
STEPS = StepsResult(
    "job",
    [
        SequenceSteps(
            LONG,
            3,
            1234,
            "quarantined",
            False,
            123_456,
            3,
            2,
            WHY,
            {"LOST": 1},
            [StepRow("fs-rename", LONG, "LOST", WHY)],
        )
    ],
    {},
)
COUNTS = RunCounts(
    attempts=3,
    attempts_failed=2,
    attempt_ms=123_456,
    records_read=1_234_567,
    bytes_read=10**9,
    records_rejected=17,
    records_published=123_456,
    files_published=12,
)
KEPT = RecordedRun(
    RunRow(1234, "run", RunStatus.FAILED, "run", "ann@host"),
    None,
    None,
    [RunDatasetRow(LONG, 1, DatasetOutcome.QUARANTINED, COUNTS, "quarantined", WHY)],
)
DIFFERENT = CompareResult(False, "other", True, 1, 1, [CompareRow(LONG, "0", 10**9, 10**9, 1, 10**9, 17, 123_456)], [])
FLOW = FlowCounts(
    constructs=(ConstructCounts("branch", "avro_registry", 123_456_789, 1234, 1234, 1234, 0, 123.4),),
    checks=(CheckCounts("branch", LONG, True, 5, 17),),
)


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize(
    ("view", "words"),
    [
        (replay_plan_view(PLAN), ["quarantines", "123,456"]),
        (steps_view(STEPS), ["LOST"]),
        (recorded_run_view(KEPT), ["quarantined", "123,456", "1,234,567", "17", "3 (2 failed)", "123.5"]),
        (compare_view(DIFFERENT), ["1,000,000,000", "17", "123,456"]),
        (flow_table(FLOW), ["avro_registry", "123,456,789", "1,234", "123.4", "17 of 22 work units failed"]),
    ],
)
def test_table_with_many_columns_is_complete_and_folds_no_word(
    view: RenderableType, words: list[str], width: int
) -> None:
    output = lines(view, width)
    assert max(map(cell_len, output)) <= width
    shown = "\n".join(output)
    assert all(word in shown for word in words), shown
    assert LONG[:16] in shown, "the dataset's name must be readable"
    if WHY.split(maxsplit=1)[0] in shown:
        assert all(word in shown for word in WHY.split())


def test_status_view_of_a_job_without_datasets_names_the_source_section() -> None:
    status = StatusResult("job", "/store", 64, 2, "run", [], {}, last_run=samples.RUN_RECORD)
    where = "check the section source of the job file"
    assert where in " ".join(lines(status_view(status), 200))
    assert where not in " ".join(lines(status_view(structs.replace(status, last_run=None)), 200))
    assert where not in " ".join(lines(status_view(structs.replace(status, counts={"idle": 1})), 200))


@pytest.mark.parametrize(
    ("status", "died", "reason"),
    [(RunStatus.FAILED, True, "it died"), (RunStatus.RUNNING, False, "it is under way")],
)
def test_status_view_shows_whether_a_run_without_a_record_is_alive(status: RunStatus, died: bool, reason: str) -> None:
    result = StatusResult("job", "/store", 64, 2, "run", [], {}, no_record="it is under way, or it died")
    for runs, expected in ([], result.no_record), ([RunRow(2, "run", status, is_dead=died)], reason):
        assert f"no record: {expected}" in lines(status_view(structs.replace(result, runs=runs)), 200)[3]


def test_composite_position_is_printed_in_stored_form_and_truncated() -> None:
    positions: dict[str, Position] = {"0": 3, "files": (1, 0, "a.jsonl", "x" * 200)}
    row = DatasetRow(DatasetStatusRow("clicks", "idle", positions, "", 1, 0, 0, 0, "", 0))
    shown = "\n".join(lines(datasets_view(DatasetsResult("job", [row], 1, {})), 200))
    assert '3, [1,0,"a.jsonl","xxx' in shown
    assert "x" * 100 not in shown


def test_runs_view_fits_a_small_terminal() -> None:
    row = RunRow(
        1234567,
        "run",
        RunStatus.SUCCESSFUL,
        "run",
        "ann@host",
        began_ms=1_700_000_000_000,
        ended_ms=1_700_000_123_400,
        datasets_published=50_000,
        datasets_unpublished=123,
        records_published=123_456_789,
        reason=WHY,
    )
    output = lines(runs_view(RunsResult("job", "/store", [row], 0)), 80)
    assert max(map(cell_len, output)) <= 80
    assert " ".join(output[2].split()) == "1234567 SUCCESSFUL 2023-11-14 22:13 123.4 s 50,000 123 123,456,789"


def test_runs_view_explains_gaps_between_epochs() -> None:
    rows = [RunRow(epoch, f"run {epoch}", RunStatus.COMMITTED) for epoch in (5, 2)]
    shown = [
        " ".join("\n".join(lines(runs_view(RunsResult("job", "/store", rows[at:], 0)), 200)).split()) for at in (0, 1)
    ]
    assert ["epochs grow with each run; gaps are normal" in text for text in shown] == [True, False]
