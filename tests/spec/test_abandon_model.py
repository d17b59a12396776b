"""The model of abandoning what goes to several targets: what holds, and which naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.abandon_model import DESIGN, NAIVE, explore


@pytest.mark.parametrize("name", DESIGN)
def test_an_abandoned_sequence_is_nowhere_and_one_that_can_not_be_is_as_it_was(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 2_000


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_a_naive_rule_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive)
    assert wrong != "none"
    assert history
