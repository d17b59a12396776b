"""The model of abandoning a sequence at several targets: its invariants hold, and naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.abandon_model import DESIGN, NAIVE, explore


@pytest.mark.parametrize("name", DESIGN)
def test_abandoned_sequence_is_nowhere_and_a_refused_abandon_changes_nothing(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 2_000


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_naive_base_check_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive)
    assert wrong != "none"
    assert history
