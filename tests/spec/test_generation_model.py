"""The model of rebucketing: its invariants hold, and naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.generation_model import DESIGN, NAIVE, explore

SMALL = ("crashed", "by_hand", "after")


@pytest.mark.parametrize("name", SMALL)
def test_rebucket_invariants_hold_over_all_states(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 200


@pytest.mark.parametrize("name", [name for name in DESIGN if name not in SMALL])
def test_rebucket_invariants_hold_over_the_first_states_and_on_walks_from_there(name: str) -> None:
    wrong, states, history = explore(name, limit=2_000, walks=30)
    assert wrong == "none*", history
    assert states >= 2_000


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in DESIGN if name not in SMALL])
def test_rebucket_invariants_hold_over_the_states_of_many_actors(name: str) -> None:
    wrong, _, history = explore(name, limit=300_000, walks=1_000)
    assert wrong.startswith("none"), history


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_naive_rebucket_rule_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive, limit=30_000)
    assert not wrong.startswith("none")
    assert history
