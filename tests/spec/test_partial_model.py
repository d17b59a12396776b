"""The model of policy `partial`: its invariants hold, and naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.partial_model import DESIGN, NAIVE, explore

SMALL = ("attempts", "follows", "resumed")


@pytest.mark.parametrize("name", SMALL)
def test_prefix_of_a_failed_attempt_is_published_once_over_all_states(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 3_000


@pytest.mark.parametrize("name", [name for name in DESIGN if name not in SMALL])
def test_prefix_of_a_failed_attempt_is_published_once_over_the_first_states_and_on_walks(name: str) -> None:
    wrong, states, history = explore(name, limit=10_000, walks=300)
    assert wrong == "none*", history
    assert states >= 10_000


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in DESIGN if name not in SMALL])
def test_prefix_of_a_failed_attempt_is_published_once_over_the_states_of_many_actors(name: str) -> None:
    wrong, _, history = explore(name, limit=400_000, walks=3_000)
    assert wrong.startswith("none"), history


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_naive_prefix_rule_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive, limit=30_000)
    assert not wrong.startswith("none")
    assert history
