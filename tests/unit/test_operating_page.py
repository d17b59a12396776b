"""The page for who is on call has each thing that the code can say is wrong, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import distcommit
from distcommit.app.auditing import audit
from distcommit.app.inspection import problems, runs
from distcommit.app.running import alerts
from distcommit.cli.help_texts import EXIT_CODES
from distcommit.cli.views import audit_view
from distcommit.core import errors

PAGE = (Path(distcommit.__file__).parents[1] / "conf" / "operating.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str, head: str) -> list[list[str]]:
    """The cells of the table of a section that begins so."""
    table = section(title).partition(f"| {head} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def tree_of(module: object) -> ast.Module:
    return ast.parse(Path(str(getattr(module, "__file__"))).read_text(encoding="utf-8"))  # noqa: B009


TROUBLES = tree_of(problems)
TABLES = {
    target.id: [str(value.value) for value in node.value.values if isinstance(value, ast.Constant)]
    for node in TROUBLES.body
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    for target in node.targets
    if isinstance(target, ast.Name)
}


def texts(text: ast.expr) -> Iterator[str]:
    """A line with `…` for what is put into it; as many as a table has that a part of it is looked up in."""
    assert isinstance(text, ast.Constant | ast.JoinedStr), f"no line that can be read here: {ast.unparse(text)}"
    found = [""]
    for part in text.values if isinstance(text, ast.JoinedStr) else [text]:
        new = [str(part.value)] if isinstance(part, ast.Constant) else ["…"]
        value = part.value if isinstance(part, ast.FormattedValue) else None
        if isinstance(value, ast.Subscript) and ast.unparse(value.value) in TABLES:
            new = TABLES[ast.unparse(value.value)]
        found = [before + after for before in found for after in new]
    return (re.sub("…+", "…", line) for line in found)


def lines() -> dict[str, str]:
    """What a `Trouble` can say, in the order of the code, with the name of its command if that is always the same."""
    found: dict[str, str] = {}
    for function in (node for node in TROUBLES.body if isinstance(node, ast.FunctionDef)):
        last: list[str] = []
        for node in sorted(ast.walk(function), key=lambda node: getattr(node, "lineno", 0)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "what":
                last = list(texts(node.value))
                found |= dict.fromkeys(last, "")
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Trouble":
                said, command = node.args[:2]
                named = isinstance(command, ast.Call) and command.args and isinstance(command.args[0], ast.Constant)
                name = str(ast.literal_eval(command.args[0])) if isinstance(command, ast.Call) and named else ""
                found |= dict.fromkeys(last if isinstance(said, ast.Name) else texts(said), name)
    return found


def test_each_trouble_that_status_can_tell_has_its_section_with_the_command() -> None:
    parts = re.split(r"^### `(.+)`$", section("What `status` says"), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    told = lines()
    assert len(told) > 10
    assert set(sections) == set(told)
    for line, command in told.items():
        assert f"distcommit {command}".strip() in " ".join(sections[line].split()), line


def test_exit_codes_are_those_that_help_tells() -> None:
    told = re.findall(r"^ *(\d+)  (.+?)\\?$", EXIT_CODES, re.MULTILINE)
    assert [(code, means) for code, means, _ in rows("Exit codes", "code | means | to do")] == told


def kinds(root: type[errors.DistcommitError] = errors.DistcommitError) -> Iterator[type[errors.DistcommitError]]:
    yield root
    for below in root.__subclasses__():
        if below.__module__.startswith("distcommit.core."):  # others are a package's own, and never come out of it
            yield from kinds(below)


def test_each_kind_of_error_is_there_with_its_exit_code() -> None:
    listed = {kind.strip("`"): int(code) for kind, code, *_ in rows("Errors", "kind | code | means | to do")}
    assert listed == {kind.__name__: kind.exit_code for kind in kinds()}


def test_each_alert_is_there() -> None:
    calls = [node for node in ast.walk(tree_of(alerts)) if isinstance(node, ast.Call)]
    told = {ast.literal_eval(call.args[4]) for call in calls if ast.unparse(call.func) == "_alert"}
    assert {why.strip("`") for why, *_ in rows("Alerts", "`why` | means | to do")} == told


def test_what_an_audit_can_find_is_there() -> None:
    listed = {said.strip("`") for said, *_ in rows("What an audit finds", "it says | means | to do")}
    found: set[str] = {"holes"}
    for node in ast.walk(tree_of(audit_view)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "listing":
            found.add(ast.literal_eval(node.args[0]))
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found |= {ast.literal_eval(key) for key, value in pairs if key and "should_be_none" in ast.unparse(value)}
    assert listed == found
    assert audit.AuditResult(exact=True, deep=False).holes == 0


def test_each_status_of_a_run_is_there() -> None:
    listed = [status for status, _ in rows("What ran, and how it ended", "status | means")]
    assert set(listed) == set(runs.RunStatus)
