"""The model of fixed settings: its invariants hold, and naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.settings_model import DESIGN, NAIVE, explore


@pytest.mark.parametrize("name", DESIGN)
def test_data_keeps_the_settings_under_which_it_was_put(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 100


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_naive_replacement_of_settings_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive)
    assert wrong != "none"
    assert history
