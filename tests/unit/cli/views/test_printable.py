"""Text from outside neither controls the terminal nor imitates a line of the product."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import typing
from collections.abc import Callable
from enum import Enum
from types import UnionType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.admin.rebuild_result import RebuildResult
from distcommit.app.auditing.audit import AuditResult
from distcommit.app.demo.demo_run import DemoResult
from distcommit.app.inspection.dataset_list import DatasetsResult
from distcommit.app.inspection.dry_runs.release_plan import ReleasePlan
from distcommit.app.inspection.dry_runs.replay_plan import ReplayPlan
from distcommit.app.inspection.dry_runs.sweep_plan import SweepResult
from distcommit.app.inspection.job_status import StatusResult
from distcommit.app.inspection.open_commit_steps import StepsResult
from distcommit.app.inspection.problems.problem_kind import Problem
from distcommit.app.inspection.recorded_runs import RecordedRun, RunsResult
from distcommit.app.inspection.verify_store import VerifyResult
from distcommit.app.migration.compare_outputs import CompareResult
from distcommit.app.migration.import_watermarks import ImportResult
from distcommit.app.running.cancel import CancelResult
from distcommit.cli.terminal import Terminal
from distcommit.cli.views import demo_result_view, migration_views
from distcommit.cli.views.audit_view import audit_view
from distcommit.cli.views.datasets_view import datasets_view, steps_view
from distcommit.cli.views.runs import run_result_view
from distcommit.cli.views.runs.dry_run_views import release_plan_view, replay_plan_view, sweep_view
from distcommit.cli.views.runs.recorded_runs_view import cancel_view, recorded_run_view, runs_view
from distcommit.cli.views.status_view import status_view
from distcommit.cli.views.verify_and_repair_view import verify_view
from distcommit.core.errors import ConfigurationError, DistcommitError, escaped_in_json, printable
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.engine.driver.run import RecoverResult, RunResult

HOSTILE = "a\x1b[31m[red]b\x9b2J[/]\u202e\u2066\r\nerror: forged\x07\x7f\u2028"
CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
VIEWS: dict[type, list[Callable[[Any], Any]]] = {
    RunResult: [run_result_view.run_view],
    RecoverResult: [run_result_view.recover_view],
    StatusResult: [status_view],
    DatasetsResult: [datasets_view],
    StepsResult: [steps_view],
    ReplayPlan: [replay_plan_view],
    ReleasePlan: [release_plan_view],
    RunsResult: [runs_view],
    RecordedRun: [recorded_run_view],
    CancelResult: [cancel_view],
    VerifyResult: [verify_view],
    SweepResult: [sweep_view],
    AuditResult: [audit_view],
    ImportResult: [migration_views.import_view],
    CompareResult: [migration_views.compare_view],
    RebuildResult: [migration_views.rebuild_view],
    DemoResult: [demo_result_view.demo_view],
}


def filled(kind: Any, text: str, flag: bool) -> Any:
    """Return a value of the type with this text in each text field."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, UnionType):
        return filled(next(a for a in arguments if a is str or a is not type(None)), text, flag)
    if origin is dict:
        return {filled(arguments[0], text, flag): filled(arguments[1], text, flag)}
    if origin is tuple and arguments[-1] is not ...:
        return tuple(filled(argument, text, flag) for argument in arguments)
    if origin in (list, tuple):
        return origin([filled(arguments[0], text, flag)])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{name: filled(hints[name], text, flag) for name in kind.__struct_fields__})
    return {Any: text, str: text, bool: flag, int: 3, float: 1.5}[kind]


def shown(monkeypatch: pytest.MonkeyPatch, act: Callable[[Terminal], None], *, as_json: bool = False) -> str:
    """Return the content of stdout and stderr as a UTF-8 terminal receives it."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    act(Terminal(as_json=as_json, verbose=False))
    return raw.getvalue().decode()


def cases() -> list[Any]:
    return [
        pytest.param(kind, view, flag, id=f"{kind.__name__}-{number}-{flag}")
        for kind, views in VIEWS.items()
        for number, view in enumerate(views)
        for flag in (False, True)
    ]


@pytest.mark.parametrize(("kind", "view", "flag"), cases())
@pytest.mark.parametrize("text", [HOSTILE, "\udcff[/red]"])
def test_views_print_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, kind: type, view: Callable[[Any], Any], flag: bool, text: str
) -> None:
    result = filled(kind, text, flag)
    text_printed = shown(monkeypatch, lambda terminal: terminal.show(result, view))
    assert CONTROLS.search(text_printed) is None
    assert not re.search("^ *error: forged", text_printed, re.MULTILINE)
    as_json = shown(monkeypatch, lambda terminal: terminal.show(result, view), as_json=True)
    assert CONTROLS.search(as_json) is None
    assert len(as_json.splitlines()) == 1
    assert json.loads(as_json) == json.loads(json.dumps(msgspec.to_builtins(result)))


def test_name_that_looks_like_markup_is_printed_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    result = filled(StatusResult, "[red]a[/]", False)
    text_printed = shown(monkeypatch, lambda terminal: terminal.show(result, status_view))
    assert "[red]a[/]" in text_printed.replace("\n", "")


def test_long_command_is_printed_in_one_line_for_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"distcommit run /{'folder/' * 60}job.yaml"
    result = msgspec.structs.replace(filled(StatusResult, "a", False), problems=[Problem("X", "wrong", command)])
    text_printed = shown(monkeypatch, lambda terminal: terminal.show(result, status_view))
    assert command in map(str.strip, text_printed.splitlines())


def fail(terminal: Terminal) -> None:
    logger = logging.getLogger("distcommit.test")
    logger.warning("of %s", HOSTILE, extra={"dataset": HOSTILE})
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("failed")
    terminal.print_line(HOSTILE)
    raise ConfigurationError("wrong", dataset=HOSTILE, found=HOSTILE)


def test_errors_and_logs_print_no_control_characters_and_forge_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(terminal: Terminal) -> None:
        with pytest.raises(SystemExit), terminal.command():
            fail(terminal)

    for as_json in (False, True):
        text_printed = shown(monkeypatch, act, as_json=as_json)
        assert CONTROLS.search(text_printed) is None
        assert "error: forged" in text_printed
        assert not re.search("^error: forged", text_printed, re.MULTILINE)


def test_errors_of_other_types_print_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (OSError(5, HOSTILE, HOSTILE), RuntimeError(HOSTILE)):

        def act(terminal: Terminal, error: Exception = error) -> None:
            with pytest.raises(SystemExit), terminal.command():
                raise error

        assert CONTROLS.search(shown(monkeypatch, act)) is None


@given(st.text(st.characters(), max_size=40))
def test_printable_text_has_no_control_character_and_leaves_all_others(text: str) -> None:
    text_printed = printable(text)
    assert CONTROLS.search(text_printed) is None
    assert "\n" not in text_printed
    if not CONTROLS.search(text) and "\n" not in text and "\t" not in text:
        assert text_printed == text
    assert json.loads(escaped_in_json(json.dumps(text, ensure_ascii=False))) == text
    error = DistcommitError(text, dataset=text, found=text)
    assert CONTROLS.search(str(error)) is None
    assert "\n" not in str(error)
    assert error.ids["dataset"] == text


def test_names_in_other_scripts_are_printed_unchanged() -> None:
    for name in ("ünï/côde", "\u0645\u200c\u0646", "話題", "👩\u200d💻", "a\\x1b"):
        assert printable(name) == name


def test_run_view_shows_skipped_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tuple(Reason(f"__{number}", "passed over", "internal") for number in range(4))
    result = RunResult("r", 1, True, True, {}, RunCounts(), [], notes=Reasons(notes, 2))
    text_printed = shown(monkeypatch, lambda terminal: terminal.show(result, run_result_view.run_view))
    assert "4 (__0, __1, __2, ...): internal; and 2 more" in " ".join(text_printed.split())
