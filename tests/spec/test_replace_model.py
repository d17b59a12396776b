"""The model of replacing published files: its invariants hold, and naive variants break."""

from __future__ import annotations

import pytest

from tests.spec.replace_model import DESIGN, NAIVE, explore

SMALL = ("twins", "abandon", "beside")
REPLACING = ("replace twins", "replace abandon", "replace reprocess", "partition abandon")
COMPACTING = tuple(name for name in DESIGN if name.startswith("compact"))
ACCEPTING = ("accept", "replace accept")
MANY = tuple(name for name in DESIGN if name not in (*SMALL, *REPLACING, *COMPACTING, *ACCEPTING))


@pytest.mark.parametrize("name", SMALL)
def test_each_record_has_one_live_file_over_all_states(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 6_000


@pytest.mark.parametrize("name", REPLACING)
def test_only_the_newest_replacement_is_visible_over_all_states(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 2_500


@pytest.mark.parametrize("name", ACCEPTING)
def test_accept_beside_an_abandon_loses_and_doubles_nothing_over_all_states(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 1_000


@pytest.mark.parametrize("name", COMPACTING)
def test_each_record_has_one_live_file_beside_compactions_over_all_states(name: str) -> None:
    wrong, states, history = explore(name)
    assert wrong == "none", history
    assert states > 2_000


@pytest.mark.parametrize("name", MANY)
def test_each_record_has_one_live_file_over_the_first_states_and_on_walks_from_there(name: str) -> None:
    wrong, states, history = explore(name, limit=10_000, walks=300)
    assert wrong == "none*", history
    assert states >= 10_000


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MANY)
def test_each_record_has_one_live_file_over_the_states_of_many_actors(name: str) -> None:
    wrong, _, history = explore(name, limit=400_000, walks=3_000)
    assert wrong.startswith("none"), history


@pytest.mark.parametrize(("name", "naive"), [(name, naive) for name, naive, _ in NAIVE])
def test_naive_replacement_rule_breaks(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive, limit=30_000)
    assert not wrong.startswith("none")
    assert history
