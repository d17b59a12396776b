"""The error catalogue has complete entries, and its page is up to date."""

from __future__ import annotations

import re

import pytest

from distcommit.app.inspection.problems.catalogue import PROBLEMS
from distcommit.cli.main import commands_by_name
from distcommit.core.error_catalogue import ERRORS, ErrorEntry, catalogue
from distcommit.core.errors import DistcommitError, TransientError
from tests.error_ids import take_wrong_ids
from tests.unit.core.errors_page import PAGE, classes_by_name, errors_page

CLASSES = classes_by_name()
COMMANDS = commands_by_name()


def test_page_of_errors_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == errors_page(), (
        "run python -m tests.unit.core.errors_page to update the page"
    )


def test_ids_are_unique_and_not_those_of_problems() -> None:
    modules = [module for module in vars(catalogue).values() if hasattr(module, "ENTRIES")]
    ids = [entry.id for module in modules for entry in module.ENTRIES]
    assert len(ids) == len(set(ids)) == len(ERRORS)
    assert not ERRORS.keys() & PROBLEMS.keys()


@pytest.mark.parametrize("entry", ERRORS.values(), ids=ERRORS)
def test_entry_has_a_class_cause_impact_and_imperative_action(entry: ErrorEntry) -> None:
    assert re.fullmatch("[A-Z]+(_[A-Z]+)+", entry.id)
    assert entry.error in CLASSES
    assert len(entry.title.split()) <= 8
    assert entry.title[-1].isalnum()
    assert all(re.fullmatch(r"[A-Z`].*\.", text) for text in (entry.cause, entry.impact, entry.action))
    assert not re.match(r"(The|A|An|It|This|If|You|When|Nothing)\b", entry.action), "it begins with a verb"


@pytest.mark.parametrize("entry", [each for each in ERRORS.values() if each.command], ids=lambda item: item.id)
def test_command_of_an_entry_exists_with_its_options(entry: ErrorEntry) -> None:
    words = entry.command.split()
    if words[0].startswith("--"):
        assert words in (["--help"], ["--version"])
        return
    name = max((name for name in COMMANDS if f"{entry.command} ".startswith(f"{name} ")), key=len)
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options


def test_each_class_has_an_entry_of_its_own() -> None:
    own = [kind for kind in CLASSES.values() if issubclass(kind, DistcommitError)]
    core = {kind.id: kind.__name__ for kind in own if kind.__name__ not in ("JobFileError", "CheckFailedError")}
    assert core == {name: ERRORS[name].error for name in core}
    assert all(issubclass(kind, CLASSES[ERRORS[kind.id].error]) for kind in own)


@pytest.mark.parametrize("error_id", ["NO_SUCH_ID", "JOB_FILE_INVALID"])
def test_error_with_an_unknown_id_or_that_of_another_class_fails_its_test(error_id: str) -> None:
    TransientError("it failed", id=error_id)
    assert take_wrong_ids() == [f"{error_id} of a TransientError: it failed"]
