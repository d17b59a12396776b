"""The outcome of a commit to a table without a record of the dataset."""

from __future__ import annotations

import pytest

from distcommit.core.interfaces.committer import CommitRequest, FailedForGood
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.table_formats.table_refusals import was_emptied


def never() -> bool:
    raise AssertionError("the files of the table were listed")


@pytest.mark.parametrize(
    ("bases", "row", "has_ledger"),
    [((0,), None, False), ((), None, False), ((3,), LedgerRow(dataset_urn="a", branch="main", epoch=3), True)],
    ids=["first", "unknown", "known"],
)
def test_commit_to_an_intact_table_does_not_list_its_files(
    bases: tuple[int, ...], row: LedgerRow | None, has_ledger: bool
) -> None:
    """A run may commit many new datasets to one table, and each listing takes time in proportion to its files."""
    request = CommitRequest("a", 4, (), bases=bases)
    assert was_emptied("t", request, row, has_ledger=has_ledger, has_rows=never) is None


@pytest.mark.parametrize(("has_rows", "way"), [(True, "drop the table"), (False, "dropped and recreated")])
def test_rows_of_a_table_without_ledger_may_be_the_dataset_s_own(has_rows: bool, way: str) -> None:
    request = CommitRequest("a", 4, (), bases=(3,))
    outcome = was_emptied("t", request, None, has_ledger=False, has_rows=lambda: has_rows)
    assert isinstance(outcome, FailedForGood)
    assert way in outcome.reason
