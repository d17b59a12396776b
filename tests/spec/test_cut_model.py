"""The model of cuts: its invariants hold, and naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.cut_model import NAIVE, explore


@pytest.mark.parametrize("name", ["runs", "job"])
def test_each_counting_cut_is_whole_over_all_states(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 45_000


@pytest.mark.parametrize("name", ["reader", "job of three"])
def test_each_counting_cut_is_whole_over_the_first_states_and_on_walks_from_there(name: str) -> None:
    wrong, states, history = explore(name, limit=20_000, walks=300)
    assert wrong == "none*", history
    assert states >= 20_000


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["reader", "job of three"])
def test_each_counting_cut_is_whole_over_the_states_of_many_actors(name: str) -> None:
    wrong, _, history = explore(name)
    assert wrong.startswith("none"), history


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_naive_cut_rule_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive)
    assert not wrong.startswith("none")
    assert history
