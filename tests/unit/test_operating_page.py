"""The pages for operators list exactly the existing exit codes, errors, alerts, run statuses and audit findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import distcommit
from distcommit.app.auditing.audit_result import AuditResult
from distcommit.app.inspection import recorded_runs as runs
from distcommit.app.running import run_alerts
from distcommit.cli.exit_codes import EXIT_CODES
from distcommit.cli.views.audit_view import audit_facts, audit_listings
from distcommit.cli.views.view_components import should_be_none
from distcommit.core import errors

OPERATE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "operate"


def rows(page: str, head: str) -> list[list[str]]:
    """Return the cells of the table with this head on a page."""
    text = (OPERATE / f"{page}.md").read_text(encoding="utf-8")
    table = text.partition(f"| {head} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def test_exit_codes_on_the_page_are_those_of_the_help() -> None:
    expected = re.findall(r"^ *(\d+)  (.+?)\\?$", EXIT_CODES, re.MULTILINE)
    assert [(code, means) for code, means, _ in rows("exit-codes", "code | means | to do")] == expected


def kinds(root: type[errors.DistcommitError] = errors.DistcommitError) -> Iterator[type[errors.DistcommitError]]:
    yield root
    for below in root.__subclasses__():
        if below.__module__.startswith("distcommit.core."):  # other errors are internal to their package
            yield from kinds(below)


def test_page_lists_each_error_with_its_exit_code() -> None:
    listed = {kind.strip("`"): int(code) for kind, code, *_ in rows("exit-codes", "class | code | means | to do")}
    assert listed == {kind.__name__: kind.exit_code for kind in kinds()}


def test_page_lists_each_alert() -> None:
    listed = {
        reason.strip("`"): problem for reason, problem, *_ in rows("alerts", "`trigger` | problem | means | to do")
    }
    assert listed == {
        reason: f"[`{kind.id}`](../reference/problems.md#{kind.id.lower()})"
        for reason, kind in run_alerts.ALERTS.items()
    }


def test_page_lists_each_audit_finding() -> None:
    listed = {finding.strip("`") for finding, *_ in rows("audit", "it says | means | to do")}
    result = AuditResult(exact=False, deep=False, duplicates=1, gaps=1, past_watermark=1, skipped=1)
    in_red = {name for name, shown in audit_facts(result).items() if shown.startswith(should_be_none(1))}
    assert listed == {"holes", *in_red, *audit_listings(result)}
    assert len(in_red) == 4


def test_page_lists_each_run_status() -> None:
    listed = [status for status, _ in rows("status", "status | means")]
    assert set(listed) == set(runs.RunStatus)
