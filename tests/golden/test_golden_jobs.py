"""Jobs in every stored state are finished by runs and by operator actions."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.engine.driver.run import run
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from tests.golden.job import source, store_at
from tests.golden.jobs import BACK, FINE, GONE, HALF, JOBS, READ, STATES, go_on
from tests.golden.make import JOBS as GOLDEN_JOBS
from tests.golden.test_golden_store import audit, checked_out, marks, records, states, watermarks
from tests.simulation.world import launch_here


def opened(tmp_path: Path, name: str) -> JobStore:
    """Open the store of a copy of a golden job."""
    return store_at(checked_out(GOLDEN_JOBS / name, tmp_path / name))


def test_each_golden_job_has_its_documented_state() -> None:
    """Otherwise the tests below would prove nothing."""
    assert {path.name for path in GOLDEN_JOBS.iterdir()} == set(JOBS)
    assert {urn: state.status.value for urn, state in states(store_at(GOLDEN_JOBS / "stuck")).items()} == STATES
    for name, decided in (("held", frozenset()), ("decided", frozenset({2}))):
        store = store_at(GOLDEN_JOBS / name)
        assert {urn for urn, state in states(store).items() if state.open and state.open.held} == set(READ)
        assert store.job_log().refresh().decided_epochs == decided


def test_stuck_datasets_stay_stuck_and_the_others_continue(tmp_path: Path) -> None:
    store = opened(tmp_path, "stuck")
    settings = go_on(store, source(READ))
    result = run(launch_here, settings)
    end_run(store, settings.epoch, clean=result.succeeded)
    assert not result.succeeded
    assert result.totals.sequences_replayed == 1
    assert watermarks(store) == {FINE: marks(READ)[FINE], HALF: marks(READ)[HALF], GONE: None, BACK: None}
    audit_result = audit(store)
    assert (audit_result.records, audit_result.duplicates, audit_result.gaps) == (
        records({FINE: READ[FINE], HALF: READ[HALF]}),
        0,
        0,
    )
    assert sorted(audit_result.pending) == [f"{urn} ({STATES[urn]})" for urn in (GONE, BACK)]
    for urn in (GONE, BACK):
        operator_actions.abandon(store, urn, "a person")
    assert run(launch_here, go_on(store, source(READ), 8)).succeeded
    audit_result = audit(store)
    assert (audit_result.exact, audit_result.records) == (True, records(READ)), audit_result
    assert watermarks(store) == marks(READ)


@pytest.mark.parametrize(("name", "replayed", "dropped"), [("held", 0, 4), ("decided", 4, 0)])
def test_held_sequences_are_dropped_or_published_as_decided(
    tmp_path: Path, name: str, replayed: int, dropped: int
) -> None:
    store = opened(tmp_path, name)
    result = run(launch_here, go_on(store, source(READ), job_level=True))
    assert result.succeeded, result
    assert (result.totals.sequences_replayed, result.totals.sequences_dropped) == (replayed, dropped)
    assert result.totals.records_read == (0 if replayed else records(READ))
    audit_result = audit(store)
    assert (audit_result.exact, audit_result.records) == (True, records(READ)), audit_result


def test_published_file_that_no_record_names_is_read_again(tmp_path: Path) -> None:
    store = opened(tmp_path, "unsealed")
    assert run(launch_here, go_on(store, source(READ), at_least_once=True)).succeeded
    assert watermarks(store) == marks(READ)
    twice = sum(int(READ[HALF][partition]) for partition in ("0", "1"))  # the files that were published before
    audit_result = audit(store)
    assert (audit_result.records, audit_result.duplicates, audit_result.gaps) == (records(READ) + twice, twice, 0)
