"""The rule of every ledger, compared with a model: a history of epochs, each committed or rolled back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.committer import AlreadyCommitted, CommitRequest, FailedForGood
from distcommit.core.interfaces.ledger import Covered, LedgerRow
from distcommit.sinks.base.idempotent_commit import answered, commit_id, committed, taken_back


def request_of(epoch: int, *bases: int) -> CommitRequest:
    return CommitRequest("d", epoch, ({},), bases=bases)


def part(epoch: int) -> tuple[Covered, ...]:
    return (Covered(rows=epoch),)


def row_of(*epochs: int, revoked: int = 0) -> LedgerRow | None:
    row = LedgerRow(dataset_urn="d", branch="main", revoked=revoked) if revoked else None
    for epoch in epochs:
        row = committed(row, request_of(epoch), part(epoch))
    return row


@pytest.mark.parametrize(
    ("row", "request_", "expected"),
    [
        (None, request_of(3, 0), None),
        (row_of(2), request_of(3, 2), None),
        (row_of(2), request_of(3, 0, 2), None),
        (row_of(1, 2), request_of(3), None),
        (row_of(3), request_of(3, 2), AlreadyCommitted()),
        (row_of(3, revoked=3), request_of(3, 2), AlreadyCommitted()),
    ],
)
def test_epoch_is_committed_from_the_base_that_the_store_knows(
    row: LedgerRow | None, request_: CommitRequest, expected: object
) -> None:
    assert answered(row, request_) == expected


@pytest.mark.parametrize(
    ("row", "request_", "message"),
    [
        (row_of(2), request_of(4, 3), "has epoch 2 for the dataset, expected epoch 3"),
        (None, request_of(4, 3), "has no row for the dataset, expected epoch 3"),
        (row_of(3), request_of(4, 0), "has epoch 3 for the dataset, expected nothing"),
        (row_of(1), request_of(4, 0, 3), "has epoch 1 for the dataset, expected nothing or epoch 3"),
        (row_of(5), request_of(4, 2), "has epoch 5, which this store has not committed"),
        (row_of(revoked=4), request_of(4, 0), "epoch 4 was taken back"),
        (row_of(2, revoked=5), request_of(4, 2), "epoch 4 was taken back"),
    ],
)
def test_other_target_or_rolled_back_commit_is_rejected(
    row: LedgerRow | None, request_: CommitRequest, message: str
) -> None:
    outcome = answered(row, request_)
    assert isinstance(outcome, FailedForGood)
    assert message in outcome.reason


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12))
def test_ledger_row_matches_any_history_of_commits_and_rollbacks(acts: list[tuple[bool, bool]]) -> None:
    """Each epoch is committed or not, and then rolled back or not; the row reflects the present state at each time."""
    row: LedgerRow | None = None
    there = [0]
    for epoch, (commits, takes_back) in enumerate(acts, start=1):
        request = request_of(epoch, there[-1])
        assert answered(row, request) is None
        if commits:
            row = committed(row, request, part(epoch))
            there.append(epoch)
            assert answered(row, request) == AlreadyCommitted()
        if takes_back:
            row = taken_back(row, request, part(epoch))
            assert row == taken_back(row, request, part(epoch)), "a repeated rollback changes nothing"
            there = [previous for previous in there if previous != epoch]
            assert isinstance(answered(row, request), FailedForGood)
        assert (row.epoch if row else 0) == there[-1]
        assert sum(covered_part.rows for covered_part in (row.covered if row else ())) == sum(there)


@given(st.integers(0, 6), st.integers(1, 6), st.integers(0, 6))
def test_older_row_that_is_not_a_base_is_never_overwritten(stored: int, epoch: int, base: int) -> None:
    row = row_of(stored) if stored else None
    outcome = answered(row, request_of(epoch, base))
    assert (outcome is None) == (stored < epoch and stored == base)
    assert (outcome == AlreadyCommitted()) == (stored == epoch)


def test_epoch_repeated_by_a_restored_store_is_another_commit() -> None:
    one, other = (CommitRequest("d", 3, ({},), bases=(0,), attempts=(name, "x")) for name in "ab")
    row = committed(None, one, part(3))
    assert answered(row, one) == AlreadyCommitted()
    assert isinstance(answered(row, other), FailedForGood)
    with pytest.raises(ConflictError):
        taken_back(row, other, part(3))
    assert commit_id(one) == row.commit_id
    assert answered(replace(row, commit_id=""), other) == AlreadyCommitted(), "older rows have no commit id"


def test_epoch_below_a_later_one_is_not_rolled_back() -> None:
    with pytest.raises(ConflictError, match="found epoch 5"):
        taken_back(row_of(2, 5), request_of(2), part(2))
