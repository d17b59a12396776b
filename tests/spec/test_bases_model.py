"""The model of a target's bases: its invariants hold, and naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.bases_model import DESIGN, NAIVE, explore


@pytest.mark.parametrize("name", DESIGN)
def test_wrong_target_is_never_written_and_the_right_one_never_rejected(name: str) -> None:
    wrong, states, history = explore(name, limit=30_000)
    assert wrong.startswith("none"), history
    assert states > 7_000


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DESIGN)
def test_bases_invariants_hold_over_all_states(name: str) -> None:
    wrong, _, history = explore(name)
    assert wrong == "none", history


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_naive_base_check_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive)
    assert wrong != "none"
    assert history
