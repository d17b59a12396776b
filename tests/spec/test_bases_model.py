"""The model of what a target's ledger may have before a commit: what holds, and which naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.bases_model import DESIGN, NAIVE, explore


@pytest.mark.parametrize("name", DESIGN)
def test_no_other_target_is_written_to_and_the_right_one_never_refused(name: str) -> None:
    wrong, states, history = explore(name, limit=30_000)
    assert wrong.startswith("none"), history
    assert states > 7_000


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DESIGN)
def test_it_holds_over_all_states(name: str) -> None:
    wrong, _, history = explore(name)
    assert wrong == "none", history


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_a_naive_rule_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive)
    assert wrong != "none"
    assert history
