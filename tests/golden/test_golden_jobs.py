"""Jobs that the programs of formats 1 to 4 left in every state are finished by today's program, and by people."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import NamedTuple

import pytest

from distcommit.engine.run import run
from distcommit.model.watermark import Watermark
from distcommit.stores import by_hand
from distcommit.stores.fencing import end_run
from distcommit.stores.job_store import JobStore
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.golden.job import source, store_at
from tests.golden.jobs import BACK, FINE, GONE, HALF, JOBS, READ, STATES, go_on
from tests.golden.make import GOLDEN_JOBS, GOLDEN_JOBS_1, GOLDEN_JOBS_2, GOLDEN_JOBS_3
from tests.golden.test_golden_store import audit, checked_out, marks, records, states, watermarks
from tests.simulation.world import launch_here


class Made(NamedTuple):
    """Jobs of one format. `read`: what their source has; `marks`: where datasets of it end."""

    folder: Path
    states: Set[str]
    read: ModelSource
    marks: Mapping[str, Watermark]

    def opened(self, tmp_path: Path, name: str) -> JobStore:
        return store_at(checked_out(self.folder / name, tmp_path / name))


HOLES = {"0": frozenset({1}), "9": frozenset({0})}
"""Positions without a record: one among records, which a file's footer names, and one that a task state does."""
COUNTS = {urn: {**counts, "0": counts["0"] + 1, "9": 1} for urn, counts in READ.items()}
BEFORE_AT_LEAST_ONCE = set(JOBS) - {"unsealed"}
MADE_1 = Made(GOLDEN_JOBS_1, BEFORE_AT_LEAST_ONCE, source(READ), marks(READ))
MADE_2 = Made(GOLDEN_JOBS_2, BEFORE_AT_LEAST_ONCE, source(READ), marks(READ))
MADE_3 = Made(
    GOLDEN_JOBS_3,
    BEFORE_AT_LEAST_ONCE,
    ModelSource({urn: ModelDataset(counts, holes=HOLES, incarnation=f"id-{urn}") for urn, counts in COUNTS.items()}),
    {urn: Watermark(dict(counts), f"id-{urn}") for urn, counts in COUNTS.items()},
)
MADE_4 = Made(GOLDEN_JOBS, set(JOBS), source(READ), marks(READ))


@pytest.fixture(params=[MADE_1, MADE_2, MADE_3, MADE_4], ids=["format1", "format2", "format3", "format4"])
def made(request: pytest.FixtureRequest) -> Made:
    found: Made = request.param
    return found


def test_each_state_is_there(made: Made) -> None:
    """Else the tests below would show nothing."""
    assert {path.name for path in made.folder.iterdir()} - {"sink"} == made.states
    assert {urn: state.status.value for urn, state in states(store_at(made.folder / "stuck")).items()} == STATES
    for name, decided in (("held", frozenset()), ("decided", frozenset({2}))):
        store = store_at(made.folder / name)
        assert {urn for urn, state in states(store).items() if state.open and state.open.held} == set(READ)
        assert store.job_log().refresh().decided_epochs == decided


def test_what_is_stuck_stays_and_the_others_go_on(made: Made, tmp_path: Path) -> None:
    store = made.opened(tmp_path, "stuck")
    settings = go_on(store, made.read)
    result = run(launch_here, settings)
    end_run(store, settings.epoch, clean=result.succeeded)
    assert not result.succeeded
    assert result.totals.sequences_replayed == 1
    assert watermarks(store) == {FINE: made.marks[FINE], HALF: made.marks[HALF], GONE: None, BACK: None}
    found = audit(store)
    assert (found.records, found.duplicates, found.gaps) == (records({FINE: READ[FINE], HALF: READ[HALF]}), 0, 0)
    assert sorted(found.pending) == [f"{urn} ({STATES[urn]})" for urn in (GONE, BACK)]
    for urn in (GONE, BACK):
        by_hand.abandon(store, urn, "a person")
    assert run(launch_here, go_on(store, made.read, 8)).succeeded
    found = audit(store)
    assert (found.exact, found.records) == (True, records(READ)), found
    assert watermarks(store) == made.marks


@pytest.mark.parametrize(("name", "replayed", "dropped"), [("held", 0, 4), ("decided", 4, 0)])
def test_what_was_held_is_dropped_or_published_as_decided(
    made: Made, tmp_path: Path, name: str, replayed: int, dropped: int
) -> None:
    store = made.opened(tmp_path, name)
    result = run(launch_here, go_on(store, made.read, job_level=True))
    assert result.succeeded, result
    assert (result.totals.sequences_replayed, result.totals.sequences_dropped) == (replayed, dropped)
    assert result.totals.records_read == (0 if replayed else records(READ))
    found = audit(store)
    assert (found.exact, found.records) == (True, records(READ)), found


def test_what_no_record_names_is_read_again(tmp_path: Path) -> None:
    store = MADE_4.opened(tmp_path, "unsealed")
    assert run(launch_here, go_on(store, source(READ), at_least_once=True)).succeeded
    assert watermarks(store) == marks(READ)
    twice = sum(int(READ[HALF][partition]) for partition in ("0", "1"))  # the files that were published by then
    found = audit(store)
    assert (found.records, found.duplicates, found.gaps) == (records(READ) + twice, twice, 0)
