"""Every input of the table has its right value."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.inputs.case import Case
from tests.inputs.collect import cases

CASES = cases()
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("case", [case for case in CASES if case.run], ids=lambda case: f"{case.point}: {case.given!a}")
def test_input_has_its_right_value(case: Case, tmp_path: Path) -> None:
    assert case.run
    assert case.run(tmp_path) == case.right


def test_referenced_tests_exist() -> None:
    missing = [case.test for case in CASES if case.test and not _exists(case.test)]
    assert not missing


def test_no_input_is_listed_twice() -> None:
    repeated = [key for key, count in Counter((case.point, case.given) for case in CASES).items() if count > 1]
    assert not repeated


def _exists(test: str) -> bool:
    path, *names = test.split("::")
    if not (ROOT / path).is_file():
        return False
    scope: ast.AST = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    for name in names:
        nodes = [
            node
            for node in ast.iter_child_nodes(scope)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        ]
        if not nodes:
            return False
        scope = nodes[0]
    return True
