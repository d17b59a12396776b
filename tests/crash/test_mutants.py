"""The mutation machinery: defects are found, the original passes, and no two mutants are confused."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distcommit.core.errors import ConfigurationError
from tests.checkers import mutants
from tests.checkers.kill_suite import ELSEWHERE, Budgets
from tests.checkers.mutant_sources import Mutant, generated_mutants
from tests.checkers.named_mutants import NAMED, named_mutants
from tests.checkers.operations import Change, changed, operation
from tests.checkers.reaching_tests import Reached, changed_lines

OPERATIONS = """
class A:
    def f(self, x, y):
        if x is not None:
            g(h(x), y=1, z=2)
            k(x=x, y=y)
        match x:
            case int():
                return y
            case str():
                return y
"""
QUICK = Budgets(explore_s=1, interleave_s=0.3, faults_s=0.3, unit=("protocol", "steps"))


@pytest.mark.long
@pytest.mark.slow
def test_known_defects_are_found_and_the_original_passes() -> None:
    names = ["no-closed-epoch", "target-exists-is-done", "done-before-effects"]
    result = mutants.mutants(0, 1, 2, only=",".join(f":named:{name}" for name in names), budgets=QUICK)
    assert (result["mutants"], result["killed"], result["survivors"], result["not_tried"]) == (3, 3, [], 0)
    assert sorted(row["id"].rpartition(":")[2] for row in result["named"]) == sorted(names)
    assert all(row["why"] for row in result["outcomes"])
    assert "tried again" not in mutants.table(result)

    lived = [row | {"stage": ""} if row["id"].endswith("no-closed-epoch") else row for row in result["outcomes"]]
    again = mutants.mutants(
        0, 1, 1, only=",".join(f":named:{name}" for name in names), budgets=QUICK, before=result | {"outcomes": lived}
    )
    assert (again["mutants"], again["killed"], again["survivors"], again["retry_count"]) == (3, 3, [], 1)
    assert "1 that had lived were tried again" in mutants.table(again)


def test_earlier_result_is_reused_only_for_the_same_product() -> None:
    before = {"outcomes": [], "seconds": 1.0, "product": "ffffffffffffffff"}
    with pytest.raises(ConfigurationError, match="of another product"):
        mutants.mutants(0, 1, 1, only=":named:", budgets=QUICK, before=before)


def test_product_that_fails_unmodified_is_rejected_as_a_base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tests/unit").mkdir(parents=True)
    for folder in ("distcommit", "tests/checkers", "tests/models", "tests/simulation"):
        (tmp_path / folder).symlink_to(mutants.ROOT / folder)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    with pytest.raises(ConfigurationError, match="no unit tests in tests/unit/protocol"):
        mutants.mutants(0, 1, 1, only="no-closed-epoch", budgets=QUICK)
    for area in QUICK.unit:
        (tmp_path / "tests/unit" / area).mkdir(exist_ok=True)
    for path in ELSEWHERE:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "tests/unit/protocol/test_broken.py").write_text("def test_broken(): assert False\n")
    with pytest.raises(ConfigurationError, match=r"test_broken\.py::test_broken"):
        mutants.mutants(0, 1, 1, only="no-closed-epoch", budgets=QUICK)


def test_each_mutant_is_a_different_program_with_a_unique_name() -> None:
    all_mutants = [*named_mutants(mutants.ROOT), *generated_mutants(mutants.ROOT)]
    assert len(all_mutants) > 300
    assert len({mutant.id for mutant in all_mutants}) == len(all_mutants)
    paths = {path for mutant in all_mutants for path in mutant.sources}
    sound = {path: ast.dump(ast.parse((mutants.ROOT / path).read_text())) for path in paths}
    for mutant in all_mutants:
        for path, source in mutant.sources.items():
            assert ast.dump(ast.parse(source)) != sound[path]
        assert mutant.diff.count("\n") >= 3


def test_named_mutants_do_not_depend_on_the_layout_of_the_sources(tmp_path: Path) -> None:
    named = named_mutants(mutants.ROOT)
    assert len(named) == len(NAMED)
    for path in {path for mutant in named for path in mutant.sources}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(ast.unparse(ast.parse((mutants.ROOT / path).read_text())))
    for mutant, other in zip(named, named_mutants(tmp_path), strict=True):
        assert mutant.id == other.id
        for path, source in mutant.sources.items():
            assert ast.dump(ast.parse(source)) == ast.dump(ast.parse(other.sources[path]))


def test_named_mutants_refer_only_to_defined_names(tmp_path: Path) -> None:
    for mutant in named_mutants(mutants.ROOT):
        for number, source in enumerate(mutant.sources.values()):
            (tmp_path / f"{mutant.id.rpartition(':')[2]}_{number}.py").write_text(source)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("function", "selector", "expected"),
    [
        ("A.f", "call g", "g(h(x), y=1, z=2)"),
        ("A.f", "call h x", "h(x)"),
        ("A.f", "keyword z", "z=2"),
        ("A.f", "compare x None", "x is not None"),
        ("A.f", "return y in case int", "return y"),
    ],
)
def test_operation_is_selected_by_the_names_it_mentions(function: str, selector: str, expected: str) -> None:
    assert ast.unparse(operation(ast.parse(OPERATIONS), function, selector)) == expected


@pytest.mark.parametrize(
    ("function", "selector"),
    [("A.f", "return y"), ("A.f", "call x"), ("A.f", "call g in case str"), ("A.none", "call g"), ("A", "call g")],
)
def test_operation_selector_without_a_unique_match_is_rejected(function: str, selector: str) -> None:
    with pytest.raises((LookupError, TypeError)):
        operation(ast.parse(OPERATIONS), function, selector)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (Change("", "A.f", "call g"), "pass"),
        (Change("", "A.f", "keyword y 1"), "g(h(x), z=2)"),
        (Change("", "A.f", "keyword z"), "g(h(x), y=1)"),
        (Change("", "A.f", "keyword x"), "k(y=y)"),
        (Change("", "A.f", "call h", instead="0"), "g(0, y=1, z=2)"),
        (Change("", "A.f", "call h", before="x = 1\nif x:\n    y = 2"), "y = 2"),
    ],
)
def test_operation_is_changed_in_place(change: Change, line: str) -> None:
    after = changed(OPERATIONS, [change])
    assert line in [text.strip() for text in after.splitlines()]
    assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(OPERATIONS))


def test_part_of_an_expression_cannot_be_omitted() -> None:
    with pytest.raises(TypeError, match="can't be left out"):
        changed(OPERATIONS, [Change("", "A.f", "call h")])


BEFORE = """def f(x):
    if (
        x is not None
    ):
        g(
            x,
        )
    return x
"""


@pytest.mark.parametrize(
    ("was", "now", "lines"),
    [
        ("x is not None", "x is None", {2, 3, 4}),
        ("            x,\n", "", {5, 6, 7}),
        ("return x", "return None", {8}),
        ("    return x\n", "    h(x)\n    return x\n", {5, 6, 7, 8}),
    ],
)
def test_change_covers_all_lines_of_its_statement(was: str, now: str, lines: set[int]) -> None:
    assert changed_lines(BEFORE, BEFORE.replace(was, now)) == lines


def test_mutant_runs_the_fastest_reaching_tests_first() -> None:
    mutant = Mutant("m:f:drop:x", "", {"f.py": BEFORE.replace("return x", "return None")}, "")
    reached = Reached({"f.py": {2: ["a", "b"], 8: ["c", "b"]}, "g.py": {8: ["d"]}})
    assert reached.first(mutant, {"f.py": BEFORE}) == ["c", "b"]


def test_hanging_test_is_reported_and_many_tests_of_equal_total_time_are_not(tmp_path: Path) -> None:
    (tmp_path / "test_busy.py").write_text(
        "import time, pytest\n"
        "@pytest.mark.parametrize('each', range(4))\n"
        "def test_busy(each):\n"
        "    until = time.process_time() + 0.6\n"
        "    while time.process_time() < until: pass\n"
    )
    (tmp_path / "test_hung.py").write_text("def test_hung():\n    while True: pass\n")
    program = "import sys; from tests.checkers.kill_suite import _failed; _failed(sys.argv[1], 1, [sys.argv[2]], 2)"
    ended = [
        subprocess.run([sys.executable, "-c", program, str(tmp_path), str(tmp_path / name)], check=False).returncode
        for name in ("test_busy.py", "test_hung.py")
    ]
    assert ended == [0, -signal.SIGPROF]


def test_recorder_lists_the_tests_that_reach_a_line(tmp_path: Path) -> None:
    module = tmp_path / "distcommit/protocol/log_state.py"
    module.parent.mkdir(parents=True)
    module.write_text("def f(x):\n    if x:\n        return 1\n    return 2\n")
    (tmp_path / "test_f.py").write_text(
        "import sys\nsys.path.insert(0, 'distcommit/protocol')\nimport log_state\n"
        "def test_yes(): assert log_state.f(1)\ndef test_no(): assert log_state.f(0)\n"
    )
    program = (
        "import pathlib, pytest\nfrom tests.checkers.reaching_tests import Recorder\n"
        "recorder = Recorder(pathlib.Path.cwd())\n"
        "assert pytest.main(['-q', 'test_f.py'], [recorder]) == 0\n"
        "print(dict(recorder.reached().tests['distcommit/protocol/log_state.py']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(mutants.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    tests_by_line = ast.literal_eval(done.stdout.splitlines()[-1])
    yes, no = "test_f.py::test_yes", "test_f.py::test_no"
    assert {line: set(tests) for line, tests in tests_by_line.items()} == {2: {yes, no}, 3: {yes}, 4: {no}}


def test_sample_is_stable_for_a_seed_and_has_all_named_mutants() -> None:
    chosen = mutants.choose(mutants.ROOT, 7, 10, "")
    assert [mutant.id for mutant in chosen] == [mutant.id for mutant in mutants.choose(mutants.ROOT, 7, 10, "")]
    assert [mutant.is_named for mutant in chosen] == [True] * len(NAMED) + [False] * 10


def test_every_equivalence_argument_names_an_existing_mutant() -> None:
    assert mutants.stale_arguments() == []


def test_every_recorded_noticing_test_exists() -> None:
    noticing_tests = mutants.noticed_late()
    mutant_ids = {mutant.id for mutant in [*named_mutants(mutants.ROOT), *generated_mutants(mutants.ROOT)]}
    assert noticing_tests.keys() <= mutant_ids
    for test in noticing_tests.values():
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0].rpartition('::')[2]}(" in (mutants.ROOT / path).read_text(), test


def test_late_noticing_tests_are_kept_also_for_untried_mutants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mutants, "KNOWN", tmp_path / "known.json")
    mutants.KNOWN.write_text('{"a": "test_a", "b": "test_b", "c": "test_c"}')
    rows = [("b", "unit", "test_b[1]", 1.0), ("c", "unit", "test_other", 1.0), ("d", "unit", "test_d", 11.0)]
    rows += [("e", "explore", "a history", 99.0), ("f", "unit", "test_f", 2.0)]
    outcomes = [
        {"id": name, "description": "", "stage": stage, "why": reason, "seconds": seconds}
        for name, stage, reason, seconds in rows
    ]
    mutants.remember({"outcomes": outcomes})
    assert mutants.noticed_late() == {"a": "test_a", "b": "test_b", "d": "test_d"}


def test_table_reports_survivors_without_an_explanation() -> None:
    survivor = {"id": "a:1:drop:x", "description": "leaves out `x | y`", "diff": "", "argued": ""}
    result: dict[str, Any] = {"mutants": 3, "killed": 1, "by": {"unit": 1}, "unexplained": 1, "seconds": 2.0, "seed": 1}
    argued = {**survivor, "argued": "it is the same"}
    result |= {"named": [], "skipped": [], "not_tried": 0, "retry_count": 0}
    page = mutants.table({**result, "survivors": [survivor, argued]})
    assert "| `a:1:drop:x` | leaves out `x \\| y` | **unexplained** |" in page
    assert page.count("it is the same") == 1
