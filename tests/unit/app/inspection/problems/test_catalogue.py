"""The problem catalogue has complete entries, and its page is up to date."""

from __future__ import annotations

import re

import pytest

from distcommit.app.inspection.problems import dataset_problem_kinds, job_problem_kinds
from distcommit.app.inspection.problems.catalogue import PROBLEMS, problems_page
from distcommit.app.inspection.problems.problem_kind import Problem, ProblemKind
from distcommit.cli.main import commands_by_name
from tests.unit.app.inspection.problems_page import PAGE

COMMANDS = commands_by_name()


def command(name: str, *words: str, named: bool = False) -> str:
    return " ".join([name, *words])


def test_page_of_problems_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == problems_page(), (
        "run python -m tests.unit.app.inspection.problems_page to update the page"
    )


@pytest.mark.parametrize("kind", PROBLEMS.values(), ids=PROBLEMS)
def test_entry_has_a_stable_id_cause_impact_action_and_command(kind: ProblemKind) -> None:
    assert re.fullmatch("[A-Z]+(_[A-Z]+)+", kind.id)
    assert kind is getattr(job_problem_kinds, kind.id, None) or kind is getattr(dataset_problem_kinds, kind.id, None)
    assert len(kind.title.split()) <= 8
    assert kind.title[-1].isalpha()
    assert all(text.endswith(".") for text in (kind.cause, kind.impact, kind.action))
    for template in filter(None, (kind.command, kind.more_command)):
        name = max((name for name in COMMANDS if f"{template} ".startswith(f"{name} ")), key=len)
        words = template.removeprefix(name).split()
        options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options
    assert bool(kind.more) is bool(kind.more_command)


def quarantined(reason: str, dataset: str = "x") -> Problem:
    kind = dataset_problem_kinds.DATASET_QUARANTINED
    return kind.report(command, reason=reason, names=f"{dataset} is", dataset=dataset, way="retry")


def test_remedy_of_a_long_reason_is_the_whole_action_and_is_printed_once() -> None:
    remedy = "put the file back, " * 40 + "then release the dataset with retry"
    problem = quarantined(f"{'a file is gone, ' * 60}. To do: {remedy}")
    assert problem.action == remedy
    assert remedy not in problem.finding
    assert len(problem.finding) < 400


def test_reason_without_a_remedy_gets_the_action_of_its_entry() -> None:
    problem = quarantined("a file is gone")
    assert problem.action == dataset_problem_kinds.DATASET_QUARANTINED.action
    assert problem.finding.endswith("quarantined: a file is gone")


def test_name_with_braces_and_spaces_stays_one_word_of_the_command() -> None:
    problem = quarantined("it {failed}", dataset="a {b} c")
    assert problem.command == "dataset release a {b} c retry"
    assert "it {failed}" in problem.finding
