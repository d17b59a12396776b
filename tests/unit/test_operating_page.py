"""The pages for operators list exactly the existing exit codes, errors, alerts, run statuses and audit findings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import distcommit
from distcommit.app.auditing import audit
from distcommit.app.inspection import recorded_runs as runs
from distcommit.app.running import run_alerts
from distcommit.cli.exit_codes import EXIT_CODES
from distcommit.cli.views import audit_view
from distcommit.core import errors

OPERATE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "operate"


def rows(page: str, head: str) -> list[list[str]]:
    """Return the cells of the table with this head on a page."""
    text = (OPERATE / f"{page}.md").read_text(encoding="utf-8")
    table = text.partition(f"| {head} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def tree_of(module: object) -> ast.Module:
    return ast.parse(Path(str(getattr(module, "__file__"))).read_text(encoding="utf-8"))  # noqa: B009


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
    findings: set[str] = {"holes"}
    for node in ast.walk(tree_of(audit_view)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "listing":
            findings.add(ast.literal_eval(node.args[0]))
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            findings |= {
                ast.literal_eval(key) for key, value in pairs if key and "should_be_none" in ast.unparse(value)
            }
    assert listed == findings
    assert audit.AuditResult(exact=True, deep=False).holes == 0


def test_page_lists_each_run_status() -> None:
    listed = [status for status, _ in rows("status", "status | means")]
    assert set(listed) == set(runs.RunStatus)
