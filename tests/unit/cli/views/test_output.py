"""Output at the end of a command and its progress lines."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from distcommit.app.admin.rebuild_result import RebuildResult, RebuildRow
from distcommit.app.auditing.audit import AuditResult
from distcommit.app.auditing.offsets.shared_positions import SharedRange
from distcommit.app.auditing.partition_audit import AuditRow
from distcommit.app.checks.dry_run import DryRun, PlannedDataset
from distcommit.app.checks.flow_description import FlowColumn
from distcommit.app.demo.demo_run import DemoResult
from distcommit.app.inspection.rejected_records import RejectedRecords
from distcommit.app.jobs.preview import PreviewResult, ShownTable
from distcommit.app.migration.compare_outputs import CompareResult, CompareRow
from distcommit.app.migration.import_watermarks import ImportResult, ImportRow
from distcommit.cli.progress_display import Rate, Target, describe, describe_speed, shown_progress
from distcommit.cli.views.audit_view import audit_view
from distcommit.cli.views.demo_result_view import demo_view
from distcommit.cli.views.migration_views import compare_view, import_view, rebuild_view
from distcommit.cli.views.runs.dry_run_views import dry_run_view
from distcommit.cli.views.runs.preview_view import preview_view
from distcommit.cli.views.runs.run_result_view import run_view
from distcommit.cli.views.runs.run_view_components import rejected_view
from distcommit.cli.views.view_components import listing
from distcommit.core.records.run_counts import FlowCounts, RunCounts, SinkCounts
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.core.work_units import ConstructCounts
from distcommit.engine.driver.run import RunResult
from distcommit.engine.run_events import PhaseBegan, PhaseEnded, Progressed

_RED, _GREEN = 31, 32


def rendered(view: Any) -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


def test_run_result_with_reasons_fits_80_columns() -> None:
    reasons = (
        Reason("some.topic", "failed", "because of\nsomething that takes a long time to explain " * 4),
        Reason("a.topic", "not planned", "no broker"),
        Reason("b.topic", "not planned", "no broker"),
    )
    totals = RunCounts(
        datasets_published=2,
        datasets_failed=1,
        records_published=1234,
        files_published=7,
    )
    seconds = {"recover": 1.0, "ingest": 2.5}
    shown = rendered(run_view(RunResult("r", 4, False, True, seconds, totals, [], reasons=Reasons(reasons, 3))))
    assert max(map(len, shown.splitlines())) <= 80
    for text in (
        "2 committed, 0 unchanged, 1 failed",
        "incomplete: 2 datasets committed; 1 failed, listed below; the next run",
        "1,234",
        "some.topic",
        "a.topic, b.topic",
        "total 3.5",
        "and 3 reasons",
    ):
        assert text in shown


def test_preview_shows_wide_records_as_lists_of_names_and_values() -> None:
    narrow = ShownTable("orders", "main", "data", 2, ("id", "name"), (("1", "Ann"), ("2", "")))
    names = ("key", "kafka_partition", "kafka_timestamp_type", "device")
    nested = "{'id': 'd-0', 'site': {'city': 'HAM', 'floor': 1}} [b]"
    wide = ShownTable("sensors", "main", "data", 2, names, (("7", "0", "create", nested), ("8", "1", "create", "")))
    result = RunResult("run", 2, True, True, {}, RunCounts(), [])
    lines = [line.rstrip() for line in rendered(preview_view(PreviewResult(result, (narrow, wide), 0))).splitlines()]
    assert [line.split() for line in lines[:5:2]] == [["orders:", "2", "of", "2", "records"], ["─────────"], ["2"]]
    start = lines.index("sensors: 2 of 2 records")
    assert lines[start + 1 : start + 10] == [
        "key                   7",
        "kafka_partition       0",
        "kafka_timestamp_type  create",
        f"device                {nested}",
        "",
        "key                   8",
        "kafka_partition       1",
        "kafka_timestamp_type  create",
        "device",
    ]


def test_audit_view_shows_only_partitions_with_problems() -> None:
    good = AuditRow("fine", "0", 0, 10, 10, 0, 0, 0, 0, 0)
    bad = AuditRow("torn", "1", 0, 10, 8, 0, 0, 2, 0, 0)
    shown = rendered(audit_view(AuditResult(exact=False, deep=True, gaps=2, partitions=[good, bad])))
    assert "torn" in shown
    assert "fine" not in shown


def test_audit_view_shows_shared_ranges_and_orphaned_staging() -> None:
    shared = [SharedRange(("orders", "orders@0"), "0", 5, 9)]
    result = AuditResult(exact=False, deep=True, duplicates=4, shared_positions=shared, sweepable_files_count=3)
    shown = rendered(audit_view(result))
    assert "orders and orders@0: partition 0, offsets 5 to 8" in shown
    assert "3 attempts in staging, deleted by the next run" in shown
    unswept = ["0000000002/x: no attempt of this job has its place there"]
    shown = rendered(audit_view(AuditResult(exact=False, deep=True, orphaned_files=unswept, orphaned_files_count=1)))
    assert "things in staging that no run would sweep: take them away: 1" in shown
    assert unswept[0] in shown


def test_import_view_shows_changes_and_left_out_datasets() -> None:
    rows = [ImportRow("new", {}, {"0": 5}, "set"), ImportRow("old", {"0": 7}, {"0": 7}, "same")]
    rows += [ImportRow("other", {"0": 7}, {"0": 9}, "kept")]
    shown = rendered(import_view(ImportResult("positions.csv", True, 1, rows, ["gone: not a topic of this job"])))
    assert "dry run: 1 watermark would be set" in shown
    assert "0:5" in shown
    assert "old " not in shown
    assert "1 (they differ; --overwrite sets them)" in shown
    assert "gone: not a topic of this job" in shown


def test_compare_view_shows_differing_partitions_in_order_of_severity() -> None:
    rows = [CompareRow("further", "0", 9, 5, 4, 5), CompareRow("even", "0", 5, 5, 0, 5)]
    rows += [CompareRow("torn", "1", 5, 5, 0, 4, 0, 1)]
    shown = rendered(compare_view(CompareResult(False, "job x", True, 3, 1, rows, [])))
    assert "different: 1 of 3 partitions" in shown
    assert "even" not in shown
    assert shown.index("torn") < shown.index("further")


def test_rebuild_view_shows_problems_or_the_rebuilt_datasets() -> None:
    refused = RebuildResult(problems=["a/x.parquet: torn"], problems_count=1, repaired=["the job log"])
    shown = rendered(rebuild_view(refused))
    assert "not rebuilt: no watermark was changed" in shown
    assert "damaged files, rewritten" in shown
    assert "damaged files, to be rewritten" in rendered(rebuild_view(RebuildResult(repaired=["the job log"])))
    assert "a/x.parquet: torn" in shown
    row = RebuildRow("orders", {"0": 5}, {"0": 9}, 2, 1, 0, "two", ["one"])
    shown = rendered(rebuild_view(RebuildResult(7, True, 1, [row], ["orders/y.parquet"], 1)))
    assert "orders: its positions are of two, no longer of one" in shown
    assert "rebuilt: the job can run again" in shown
    assert "orders/y.parquet" in shown


def test_demo_view_shows_why_the_result_is_not_exact() -> None:
    shown = rendered(demo_view(DemoResult(records_produced=5, records_published=4, missing=1, problems=["1 missing"])))
    assert "not exact: 1 missing" in shown
    assert "exactly once: every produced record" in rendered(demo_view(DemoResult(exact=True)))


def progress_of(**counts: Any) -> Progressed:
    return Progressed("ingest", RunCounts(**counts), 1)


def test_progress_shows_what_is_done_of_how_much_and_the_time_left_in_80_columns() -> None:
    target = Target("records")
    target.observe(PhaseEnded("plan", 1, True, RunCounts(datasets_planned=120, size_planned=3_000_000)), 0)
    target.observe(PhaseBegan("ingest", 0), 100)
    progress = progress_of(datasets_committed=40, records_read=1_500_000, work_units_failed=1)
    text = describe("ingest", progress, target, 220)
    assert text == "ingest · 1 failure · 40 of 120 datasets · 1.5 M of 3.0 M records · 2 min left"
    assert describe("ingest", progress, target, 220, 70).endswith("3.0 M records\n2 min left"), "nothing is left out"
    many = progress_of(datasets_committed=12_345, records_read=1_500_000_000)
    large = Target("records", 100_000, 3_000_000_000, 1)
    whole = describe("ingest", many, large, 5000)
    for width in range(30, 100):
        lines = describe("ingest", many, large, 5000, width).splitlines()
        assert max(map(len, lines)) <= width
        assert " · ".join(lines) == whole
    assert "1.5 bn of 3.0 bn records" in whole
    assert describe("ingest", many, large, 5000).endswith("1 h 23 min left")
    assert describe("plan", Progressed(), Target(), 0) == "plan"


def test_time_left_follows_the_datasets_if_the_source_counts_no_records() -> None:
    target = Target("bytes")
    target.observe(PhaseEnded("plan", 1, True, RunCounts(datasets_planned=4, size_planned=10**9)), 0)
    target.observe(PhaseBegan("ingest", 0), 10)
    text = describe("ingest", progress_of(datasets_committed=1, records_read=5), target, 20)
    assert text == "ingest · 1 of 4 datasets · 5 records · 30 s left"
    assert "left" not in describe("ingest", progress_of(datasets_committed=1), target, 11), "too early for an estimate"


def test_progress_without_a_terminal_has_rate_and_time_left_every_30_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, out = [1000.0], StringIO()
    monkeypatch.setattr("distcommit.cli.progress_display.time", SimpleNamespace(monotonic=lambda: now[0]))
    with shown_progress(Console(file=out, width=80), "check the job", "records") as observer:
        observer.observe(PhaseEnded("plan", 1, True, RunCounts(datasets_planned=12_000, size_planned=5_000_000_000)))
        observer.observe(PhaseBegan("ingest", 0))
        for second in range(100):
            now[0] = 1000.0 + second
            read = 20_000_000 * min(second, 60)  # nothing is read after the first minute
            counts = RunCounts(datasets_committed=second, records_read=read, bytes_read=10 * read, work_units_failed=7)
            spent = {"json": 9.0, "read": 4.0, "write": 2.0}
            observer.observe(Progressed("ingest", counts, 8, slowest=900, fastest=12_345.6, spent=spent))
    blocks = ("\n" + out.getvalue()).split("\nat ")
    assert [block.split()[0] for block in blocks[1:]] == ["0.0", "0.0", "30.0", "60.0", "90.0"]
    assert blocks[3].splitlines() == [
        "  30.0 s  ingest · 7 failures · 30 of 12,000 datasets",
        "             600.0 M of 5.0 bn records · 4 min left",
        "             20,000,000 records/s, 200.0 MB/s · time: json 60 %, others 40 %",
    ]
    assert "0 records/s" in blocks[5], "a run that reads nothing still reports"
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_page_shows_the_progress_as_a_run_prints_it() -> None:
    spent = {"json": 45.0, "read": 23.0, "sql": 21.0, "write": 11.0}
    counts = RunCounts(datasets_committed=5, records_read=110_000)
    progress = Progressed("ingest", counts, 2, 3, slowest=6_144, fastest=10_118, spent=spent)
    lines = [
        describe("ingest", progress, Target("records", 8, 240_000, 1), 6.2),
        describe_speed(progress, 21_378, 3_204_000),
    ]
    page = Path(__file__).parents[4] / "conf" / "docs" / "guides" / "transforms.md"
    assert "```text\n" + "\n".join(lines) + "\n```" in page.read_text()


def test_rejected_records_are_shown_with_datasets_folder_and_command() -> None:
    rejected = RejectedRecords(7, 13, 3, {"orders": 10, "clicks": 2}, "/out/_rejected")
    shown = " ".join(rendered(rejected_view(rejected, "distcommit x")).split())
    assert "rejected by the run of epoch 7: 13 records of orders (10), clicks (2), ..., not published" in shown
    assert "in error files below /out/_rejected until they are reprocessed" in shown
    assert "process them again: distcommit x" in shown


def test_rejected_records_are_shown_with_their_most_frequent_reason() -> None:
    rejected = RejectedRecords(7, 13, 1, {"orders": 13}, "/out/_rejected", 0, "column 'n': 'x' is not a number", 9, 12)
    shown = rendered(rejected_view(rejected, "distcommit x"))
    assert "most frequent reason (9 of 12): column 'n': 'x' is not a number\n" in shown


@pytest.mark.parametrize(
    ("rejected", "expected"),
    [
        (0, "records 19 published, 8 filtered (of 27 read)"),
        (3, "records 16 published, 3 rejected to error files, 8 filtered (of 27 read)"),
    ],
)
def test_records_line_separates_rejected_from_filtered_records(rejected: int, expected: str) -> None:
    flow = FlowCounts((ConstructCounts("main", "sql", 27, filtered=8),))
    totals = RunCounts(records_published=19, records_rejected=rejected, records_read=27, flow=flow)
    assert expected in " ".join(rendered(run_view(RunResult("r", 4, True, True, {}, totals, []))).split())


@pytest.mark.parametrize(("branches", "attempts"), [(2, 1), (1, 2)])
def test_number_of_filtered_records_that_may_exceed_those_read_has_its_scope(branches: int, attempts: int) -> None:
    names = ["errors", *(f"branch{number}" for number in range(branches))]
    sinks = tuple(SinkCounts(name, "files", 10, 1) for name in names)
    flow = FlowCounts((ConstructCounts("main", "sql", 60, filtered=50),), sinks=sinks)
    totals = RunCounts(
        datasets_published=1, records_published=10, records_read=30, work_units=1, attempts=attempts, flow=flow
    )
    shown = " ".join(rendered(run_view(RunResult("r", 4, True, True, {}, totals, []))).split())
    assert "10 published, 50 filtered in all branches and attempts (of 30 read)" in shown
    assert "50 records filtered on purpose in all branches and attempts" in shown


def test_records_rejected_by_the_only_branch_do_not_change_the_scope_of_filtered_ones() -> None:
    sinks = (SinkCounts("main", "files", 9, 1), SinkCounts("errors", "files", 1, 1))
    flow = FlowCounts((ConstructCounts("main", "sql", 30, filtered=20, rejected=1),), sinks=sinks)
    totals = RunCounts(records_published=10, records_rejected=1, records_read=30, work_units=1, attempts=1, flow=flow)
    shown = " ".join(rendered(run_view(RunResult("r", 4, True, True, {}, totals, []))).split())
    assert "9 published, 1 rejected to error files, 20 filtered (of 30 read)" in shown


def test_summary_of_a_run_without_files_has_no_line_of_files() -> None:
    shown = rendered(run_view(RunResult("r", 4, True, True, {}, RunCounts(records_published=1), [])))
    assert "files" not in shown


def test_plan_shows_problems_first_and_then_the_largest_datasets() -> None:
    columns = [FlowColumn(f"column_of_a_long_name_{n}", "string") for n in range(9)]
    small, large = (PlannedDataset(name, 1, size, columns) for name, size in (("small", 1), ("large", 9)))
    plan = DryRun("records", 10, 2, [small, large, PlannedDataset("wrong", problem="can't be read: it is damaged")])
    lines = [line.split("  ")[0].strip() for line in rendered(dry_run_view(plan)).splitlines()]
    assert [line for line in lines if line in ("small", "large", "wrong")] == ["wrong", "large", "small"]
    assert "1 record" in rendered(dry_run_view(plan)).replace("records", "")
    assert "the same columns as large" in rendered(dry_run_view(plan))
    assert "the same cause" not in rendered(dry_run_view(plan))


def test_plan_of_datasets_without_new_records_says_that_nothing_is_read() -> None:
    plan = DryRun("records", 0, 0, [PlannedDataset("orders", 1, 0)], ["orders: 7 records left for later"])
    shown = rendered(dry_run_view(plan))
    assert shown.startswith("a run would read nothing")
    assert "7 records left for later" in shown


def test_rows_that_the_source_could_not_parse_need_a_new_file() -> None:
    rejected = RejectedRecords(7, 2, 1, {"orders": 2}, "/out/_rejected", unreadable=2)
    shown = " ".join(rendered(rejected_view(rejected, "distcommit x")).split())
    assert shown.endswith("the source could not parse 2 rows: correct each row in a new file"), "no command reads them"


@pytest.mark.parametrize(
    ("written", "rejected", "color", "expected"),
    [
        (5, 0, _GREEN, "all new records\n"),
        (3, 6, _GREEN, "all new records; 6 of 9 records rejected\n"),
        (5, 5, _GREEN, "all new records; 5 of 10 records rejected\n"),
        (2, 1_027, _RED, "all new records; 1,027 of 1,029 records rejected\n"),
    ],
)
def test_verdict_of_a_run_counts_rejected_records(written: int, rejected: int, color: int, expected: str) -> None:
    totals = RunCounts(datasets_published=1, records_written=written, records_rejected=rejected)
    out = StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system="standard", highlight=False)
    console.print(run_view(RunResult("r", 4, True, True, {}, totals, [])))
    assert out.getvalue().startswith(f"\x1b[1;{color}mcommitted\x1b[0m: {expected}")


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        (RunCounts(records_published=5), "5 published"),
        (RunCounts(records_published=5, records_rejected=2, attempts=3, work_units=3), "3 published, 2 rejected to"),
        (
            RunCounts(records_published=5, records_rejected=2, attempts=4, work_units=3),
            "5 published, error files included; 2 rejected in all attempts",
        ),
    ],
)
def test_rejected_records_are_not_counted_as_published(totals: RunCounts, expected: str) -> None:
    assert f"records {expected}" in " ".join(rendered(run_view(RunResult("r", 4, True, True, {}, totals, []))).split())


def test_speed_and_time_shares_are_described_in_one_line() -> None:
    spent = {"read": 30.0, "lake.json": 60.0, "write": 9.0, "commit": 0.3, "a": 0.2, "b": 0.3, "c": 0.2}
    progress = Progressed("", RunCounts(records_read=9), 2, slowest=900, fastest=12_345.6, spent=spent)
    text = describe_speed(progress, 25_000, 3_210_000)
    assert text == ("25,000 records/s, 3.2 MB/s (a task 900 to 12,346) · time: lake.json 60 %, read 30 %, write 9 %")
    assert describe_speed(Progressed("", RunCounts(records_read=9), 1), 5, 6) == "5 records/s, 0.0 MB/s"
    assert describe_speed(Progressed(tasks_running=3), 0, 0) == ""
    assert describe_speed(Progressed("", RunCounts(records_read=9), 2), 5, 6) == "5 records/s, 0.0 MB/s", (
        "no task has reported its time yet"
    )
    for width in range(20, 120):
        narrow = describe_speed(progress, 25_000, 3_210_000, width)
        assert len(narrow) <= max(width, len("25,000 records/s, 3.2 MB/s"))
    rate = "25,000 records/s, 3.2 MB/s · time: "
    assert describe_speed(progress, 25_000, 3_210_000, 80) == rate + "lake.json 60 %, read 30 %, write 9 %"
    assert describe_speed(progress, 25_000, 3_210_000, 66) == rate + "lake.json 60 %, others 39 %"
    many = describe_speed(Progressed("", RunCounts(records_read=1), 1, spent={str(n): 1.0 for n in range(10)}), 1, 0)
    assert many.endswith("time: 0 10 %, 1 10 %, 2 10 %, 3 10 %, 4 10 %, others 50 %")


def test_rate_covers_the_last_seconds_and_restarts_with_each_phase() -> None:
    rate = Rate()
    assert rate.of(Progressed(counts=RunCounts(records_read=100, bytes_read=50)), 0.0) == (0, 0)
    assert rate.of(Progressed(counts=RunCounts(records_read=300, bytes_read=90)), 2.0) == (100, 20)
    assert rate.of(Progressed(counts=RunCounts(records_read=300, bytes_read=90)), 7.0) == (0, 0), (
        "no record was read in the last five seconds"
    )
    assert rate.of(Progressed(counts=RunCounts(records_read=900, bytes_read=90)), 8.0) == (100, 0)
    assert rate.of(Progressed(counts=RunCounts(records_read=5)), 8.5) == (0, 0)
    assert rate.of(Progressed(counts=RunCounts(records_read=10)), 9.5) == (5, 0)


def test_words_of_a_listing_are_never_broken(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"`distcommit run job.yaml --set paths.output=/{'very-long-folder/' * 12}out`"
    Console(width=60).print(listing("warnings", [f"publish all records again: {command}"]), crop=False)
    printed = capsys.readouterr().out
    assert all(f"{word}\n" in printed or f"{word} " in printed for word in command.split())
