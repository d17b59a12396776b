"""Inputs of operator actions, of a source's results, and of the audit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import DatasetProblem, negative_positions, stored_incarnations
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import DatasetPlan, SkippedRange, WorkUnit
from distcommit.engine.planning.plan_checks import check_plan
from distcommit.pipeline.position_check import PositionCheck
from distcommit.protocol.audit_expected_positions import reach_after_setting
from distcommit.sources.sql.table_selection import is_incarnation_of
from tests.inputs.case import Case

SEES = "tests/unit/app/admin/test_audit_after_operator_actions.py::"
CLAIMS = "tests/unit/engine/reading/test_reported_positions.py::"
ACCEPTS = "tests/unit/app/admin/test_accept.py::"


def _negative(position: Position, _: Path) -> str:
    return "rejected: negative" if list(negative_positions({"t": {"0": position}})) else "accepted"


def _set(was: int, at: int, skipped: tuple[int, int] | None, incarnation: str, _: Path) -> str:
    """Return the watermark of a dataset that began at 2, as `begins ORIGIN, skips RANGES`."""
    ranges = (SkippedRange("0", *skipped, "x", incarnation="one"),) if skipped else ()
    state = DatasetState("t", watermark=Watermark({"0": was}, "one"), origin={"0": 2}, skipped=ranges)
    origin, remaining = reach_after_setting(state, Watermark({"0": at}, incarnation), "by hand")
    return f"begins {origin['0']}, skips {[(skipped_range.low, skipped_range.high) for skipped_range in remaining]}"


def _kept(stored: str | None, forgotten: str, there: str, _: Path) -> str:
    """Return the incarnation of positions that an operator sets."""
    state = DatasetState(
        "t",
        watermark=None if stored is None else Watermark({"0": 5}, stored),
        unset_watermark=Watermark({"0": 5}, forgotten) if forgotten else None,
    )
    try:
        return stored_incarnations({"t": state}, {"t": there} if there else {})["t"]
    except ConfigurationError:
        return "rejected: recreated"


def _planned(low: int, skipped: tuple[int, int] | None, begin: int, _: Path) -> str:
    """Return the plan of a dataset at `low` that skips a range and reads from `begin`."""
    unit = WorkUnit("", "t", Watermark({"0": begin}), Watermark({"0": 20}), 1)
    ranges = (SkippedRange("0", *skipped, "x"),) if skipped else ()
    plan = DatasetPlan("t", Watermark({"0": low}), Watermark({}), (unit,), ranges)
    outcome = check_plan(plan, lambda urn: True, (), CommitGroups())
    return "rejected: its range does not follow" if isinstance(outcome, DatasetProblem) else "planned"


def _read(offsets: list[list[int]], high: int, hole: tuple[int, int] | None, _: Path) -> str:
    """Return the outcome of reading a work unit from 3 to 9 with a hole in the last batch and a reported `high`."""
    unit = WorkUnit("u", "t", Watermark({"0": 3}), Watermark({"0": 9}), 1)
    delivered = PositionCheck(unit, Provenance("p", "o"))
    try:
        for number, of_it in enumerate(offsets):
            last = number == len(offsets) - 1
            holes = [SkippedRange("0", *hole, "x", True)] if hole and last else []
            delivered.take(pa.record_batch({"p": ["0"] * len(of_it), "o": pa.array(of_it, pa.int64())}), holes)
        delivered.compare(Watermark({"0": high}))
    except DistcommitError as error:
        return "rejected: " + error.args[0].removeprefix("the source ").partition(" [")[0] if error.args else "rejected"
    return "read"


def _counts(incarnation: str, column: str, query: str, _: Path) -> str:
    return "kept" if is_incarnation_of(incarnation, column, query) else "as the next plan finds"


def _case(point: str, given: str, right: str, run: Callable[[Path], str]) -> Case:
    return Case(point, given, right, run=run)


_BEHIND = "rejected: reports a position before its last delivered record"
_STRANGE = "rejected: delivers a record outside its work unit, or twice"
_HOLE = "rejected: reports a hole where it delivered a record"
_UNFIT = "rejected: its range does not follow"

CASES: list[Case] = [
    _case("set-watermark", "-1", "rejected: negative", partial(_negative, -1)),
    _case("set-watermark", "-0.5", "rejected: negative", partial(_negative, -0.5)),
    _case("set-watermark", "0", "accepted", partial(_negative, 0)),
    _case("set-watermark", "2026-01-01 (text)", "accepted", partial(_negative, "2026-01-01")),
    _case("set-watermark", "5 to 5", "begins 2, skips []", partial(_set, 5, 5, None, "one")),
    _case("set-watermark", "5 to 9", "begins 2, skips [(5, 9)]", partial(_set, 5, 9, None, "one")),
    _case("set-watermark", "5 back to 3", "begins 2, skips []", partial(_set, 5, 3, None, "one")),
    _case("set-watermark", "5 back to 0, before its beginning", "begins 0, skips []", partial(_set, 5, 0, None, "one")),
    _case(
        "set-watermark", "9 back to 6, 5 to 8 skipped", "begins 2, skips [(5, 6)]", partial(_set, 9, 6, (5, 8), "one")
    ),
    _case("set-watermark", "9 back to 5, 5 to 8 skipped", "begins 2, skips []", partial(_set, 9, 5, (5, 8), "one")),
    _case("set-watermark", "8 on to 9, 5 to 8 skipped", "begins 2, skips [(5, 9)]", partial(_set, 8, 9, (5, 8), "one")),
    _case("set-watermark", "5 to 7 of a recreated topic", "begins 7, skips []", partial(_set, 5, 7, None, "two")),
    _case("incarnation", "stored one, topic one", "one", partial(_kept, "one", "", "one")),
    _case("incarnation", "stored one, brokers away", "one", partial(_kept, "one", "", "")),
    _case("incarnation", "stored one, topic two", "rejected: recreated", partial(_kept, "one", "", "two")),
    _case("incarnation", "stored without, topic two", "two", partial(_kept, "", "", "two")),
    _case("incarnation", "null after one, topic two", "two", partial(_kept, None, "one", "two")),
    _case("incarnation", "null after one, brokers away", "one", partial(_kept, None, "one", "")),
    _case("incarnation", "column id of the same table", "kept", partial(_counts, "id:integer", "id", "")),
    _case("incarnation", "another column", "as the next plan finds", partial(_counts, "id:integer", "at", "")),
    _case(
        "incarnation", "another query", "as the next plan finds", partial(_counts, "id:integer of query a", "id", "b")
    ),
    _case("skipped", "5 to 7, read from 7", "planned", partial(_planned, 5, (5, 7), 7)),
    _case("skipped", "nothing, read from 5", "planned", partial(_planned, 5, None, 5)),
    _case("skipped", "8 to 9 in the middle", _UNFIT, partial(_planned, 5, (8, 9), 5)),
    _case("skipped", "0 to 2 below the watermark", _UNFIT, partial(_planned, 5, (0, 2), 5)),
    _case("skipped", "2 to 7 across the watermark", _UNFIT, partial(_planned, 5, (2, 7), 7)),
    _case("skipped", "7 to 5 backwards", _UNFIT, partial(_planned, 5, (7, 5), 5)),
    _case("skipped", "5 to 7, read from 5", _UNFIT, partial(_planned, 5, (5, 7), 5)),
    _case("skipped", "a unit below the watermark", _UNFIT, partial(_planned, 5, None, 4)),
    _case("positions", "3, 4 and 5, high 6", "read", partial(_read, [[3, 4], [5]], 6, None)),
    _case("positions", "3, 4 and 5, high 5", _BEHIND, partial(_read, [[3, 4], [5]], 5, None)),
    _case("positions", "3, 4 and 5, high 3", _BEHIND, partial(_read, [[3, 4], [5]], 3, None)),
    _case("positions", "3, 4 and 4 again", _STRANGE, partial(_read, [[3, 4], [4]], 5, None)),
    _case("positions", "2, before its unit", _STRANGE, partial(_read, [[2, 3]], 9, None)),
    _case("positions", "9, behind its unit", _STRANGE, partial(_read, [[8, 9]], 9, None)),
    _case("positions", "3 and 6, holes 4 to 6", "read", partial(_read, [[3], [6]], 7, (4, 6))),
    _case("positions", "3 and 5, holes 4 to 6", _HOLE, partial(_read, [[3], [5]], 6, (4, 6))),
    Case(
        "audit",
        "output from before retain",
        "not exact",
        test=SEES + "test_audit_detects_an_output_from_before_a_retention",
    ),
    Case(
        "audit",
        "output from before replace",
        "not exact",
        test=SEES + "test_audit_detects_an_output_from_before_a_replacement",
    ),
    Case(
        "audit",
        "output from before reprocess",
        "not exact",
        test=SEES + "test_audit_detects_an_output_from_before_a_reprocess",
    ),
    Case("audit", "claim or mark deleted", "not exact", test=SEES + "test_audit_detects_a_missing_claim_or_mark"),
    Case(
        "audit",
        "another job's file for our own",
        "not exact",
        test=SEES + "test_audit_reports_a_file_of_another_job_in_a_dataset_folder",
    ),
    Case(
        "audit",
        "earlier incarnation's file gone",
        "5 gaps",
        test=SEES + "test_audit_reports_missing_files_of_an_earlier_incarnation",
    ),
    Case(
        "accept",
        "one of two files lost, accepted",
        "3 skipped, exact",
        test=ACCEPTS + "test_accepting_a_sequence_skips_its_missing_records_and_the_audit_still_reports_later_damage",
    ),
    Case(
        "positions",
        "actual_high lags by a batch, policy partial",
        "nothing doubled",
        test=CLAIMS + "test_position_that_lags_behind_the_records_duplicates_none",
    ),
]
