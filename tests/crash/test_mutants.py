"""The mutation machinery: what is wrong is found, what is sound passes, and no two mutants are taken for one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from distcommit.model.errors import ConfigurationError
from tests.checkers import mutants
from tests.checkers.kill_suite import INGEST, Budgets
from tests.checkers.mutant_sources import generated_mutants
from tests.checkers.named_mutants import NAMED, named_mutants

QUICK = Budgets(explore_s=1, interleave_s=0.3, faults_s=0.3, unit=("protocol", "steps"))


@pytest.mark.slow
def test_known_errors_are_found_and_the_product_itself_is_not_one() -> None:
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
    assert (again["mutants"], again["killed"], again["survivors"], again["tried_again"]) == (3, 3, [], 1)
    assert "1 that had lived were tried again" in mutants.table(again)


def test_an_earlier_result_is_of_the_same_product() -> None:
    row = {"id": "protocol.fold:1:named:no-such", "description": "", "stage": "unit", "why": "", "seconds": 1.0}
    with pytest.raises(ConfigurationError, match="of another product"):
        mutants.mutants(0, 1, 1, only=":named:", budgets=QUICK, before={"outcomes": [row], "seconds": 1.0})


def test_a_product_that_fails_by_itself_is_no_ground_for_mutants(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tests/unit").mkdir(parents=True)
    for folder in ("distcommit", "tests/checkers"):
        (tmp_path / folder).symlink_to(mutants.ROOT / folder)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    with pytest.raises(ConfigurationError, match="no unit tests in tests/unit/protocol"):
        mutants.mutants(0, 1, 1, only="no-closed-epoch", budgets=QUICK)
    for area in (*QUICK.unit, "ingest", "stores"):
        (tmp_path / "tests/unit" / area).mkdir(exist_ok=True)
    for path in INGEST:
        (tmp_path / path).touch()
    (tmp_path / "tests/unit/protocol/test_broken.py").write_text("def test_broken(): assert False\n")
    with pytest.raises(ConfigurationError, match=r"test_broken\.py::test_broken"):
        mutants.mutants(0, 1, 1, only="no-closed-epoch", budgets=QUICK)


def test_each_mutant_is_another_program_with_a_name_of_its_own() -> None:
    made = [*named_mutants(mutants.ROOT), *generated_mutants(mutants.ROOT)]
    assert len(made) > 300
    assert len({mutant.id for mutant in made}) == len({mutant.key for mutant in made}) == len(made)
    paths = {path for mutant in made for path in mutant.sources}
    sound = {path: ast.dump(ast.parse((mutants.ROOT / path).read_text())) for path in paths}
    for mutant in made:
        for path, source in mutant.sources.items():
            assert ast.dump(ast.parse(source)) != sound[path]
        assert mutant.diff.count("\n") >= 3


def test_a_sample_is_the_same_for_the_same_seed_and_has_all_the_named_ones() -> None:
    chosen = mutants.choose(mutants.ROOT, 7, 10, "")
    assert [mutant.id for mutant in chosen] == [mutant.id for mutant in mutants.choose(mutants.ROOT, 7, 10, "")]
    assert [mutant.is_named for mutant in chosen] == [True] * len(NAMED) + [False] * 10


def test_every_argument_is_about_a_mutant_that_there_is() -> None:
    assert mutants.stale_arguments() == []


def test_the_table_tells_survivors_that_nobody_explained() -> None:
    survivor = {"id": "a:1:drop:x", "description": "leaves out `x | y`", "diff": "", "key": [], "argued": ""}
    result: dict[str, Any] = {"mutants": 3, "killed": 1, "by": {"unit": 1}, "unexplained": 1, "seconds": 2.0, "seed": 1}
    argued = {**survivor, "argued": "it is the same"}
    result |= {"named": [], "skipped": [], "not_tried": 0, "tried_again": 0}
    page = mutants.table({**result, "survivors": [survivor, argued]})
    assert "| `a:1:drop:x` | leaves out `x \\| y` | **unexplained** |" in page
    assert page.count("it is the same") == 1
