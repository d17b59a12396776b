"""The checker finds the known defects of other systems' rules, and none in a correct program."""

from __future__ import annotations

import pytest

from tests.checkers.peer_rules import PROGRAMS, SOUND, Program
from tests.checkers.peers import first_violation, peers


def test_every_peer_s_rule_breaks_with_a_short_history() -> None:
    findings = peers()
    assert len(findings) == len(PROGRAMS)
    for finding in findings:
        assert finding.violation, f"{finding.peer}: nothing found in {finding.states_tried} states"
        assert 3 <= len(finding.history) <= 20
        assert finding.history[-2] in ("killed here", "power lost here")


@pytest.mark.parametrize("program", SOUND, ids=lambda program: type(program).__name__)
@pytest.mark.parametrize("seed", [1, 2])
def test_correct_program_has_no_finding(program: Program, seed: int) -> None:
    finding = first_violation(program, seed)
    assert finding.violation == ""
    assert finding.states_tried >= 10, "a checker that tries nothing finds nothing"


@pytest.mark.parametrize(
    ("rule", "violation"),
    [
        ("StoreInPlace", "recovery fails, 3 times of 3: JSONDecodeError"),
        ("TargetExists", "records [2, 3] are lost"),
        ("StateFileWindow", "records [6, 7] are lost"),
        ("LockFile", "recovery fails, 3 times of 3: RefusedError"),
        ("TaskCommitPublishes", "records [2, 3] are published twice"),
        ("JobCommitPublishes", "records [2, 3] are published twice"),
        ("SourceMissing", "are lost"),
        ("StepByStep", "records [2, 3] are published twice"),
    ],
)
def test_finding_matches_the_gap_of_the_rule(rule: str, violation: str) -> None:
    program = next(program for program in PROGRAMS if type(program).__name__ == rule)
    assert violation in first_violation(program).violation


def test_equal_seeds_have_equal_findings() -> None:
    assert peers(3) == peers(3)
