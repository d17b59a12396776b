"""Errors of records and data files that do not fit a table.

Refusals of data files end in a remedy that `distcommit status` converts to a command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.interfaces.committer import CommitRequest, FailedForGood
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.work_units import MAIN_BRANCH

FILES_REPLACED = "other files in their place: the table was compacted, or rows were deleted"
ALWAYS_CHANGED = "other writers changed the table during each try"
_READ_AGAIN = "release the dataset with abandon: the next run reads the same records again"
_RESTART = "release the dataset with restart: the next run reads it from its beginning, into the present table"
_BRANCHES = ". The other branches of the job get its records a second time"


def misfit(table: str, columns: str, problems: Sequence[str], todo: str) -> ConfigurationError:
    return ConfigurationError(
        "records do not fit into the table",
        id="RECORDS_NOT_STORABLE",
        table=table,
        expected=columns[:500],
        found="; ".join(problems[:5]),
        todo=todo,
    )


def no_columns(schema: str) -> ConfigurationError:
    return ConfigurationError(
        "a table must have a column",
        id="COLUMN_UNSUPPORTED",
        expected="records with a column that is not always null",
        found=schema,
    )


def not_removable(table: str, files: int, actual: str) -> ConflictError:
    return ConflictError(
        "data files of the commit can't be removed from the table",
        id="COMMIT_NOT_REVERSIBLE",
        table=table,
        expected=f"a table with all {files} of them, from which files may be removed",
        found=actual,
        todo="release the dataset with accept",
    )


def was_altered(table: str, problems: Sequence[str]) -> FailedForGood | None:
    """Refuse data files with these problems in the present table."""
    if not problems:
        return None
    return FailedForGood(
        f"table {table} was altered after the data files were written: {'; '.join([*dict.fromkeys(problems)][:3])}."
        f" Nothing was written. To do: {_READ_AGAIN}, and writes them as the table is now"
    )


def was_dropped(table: str, request: CommitRequest) -> FailedForGood:
    return FailedForGood(f"table {table} does not exist any more. {_way_out(request)}")


def was_recreated(table: str, request: CommitRequest, requested: set[str], actual: str) -> FailedForGood | None:
    """Return FailedForGood if data files were written for a table with another id than `actual`; otherwise None."""
    if requested <= {actual}:
        return None
    written = f"its id is {actual}, and the files were written for {', '.join(sorted(requested))}"
    return FailedForGood(f"table {table} was recreated: {written}. {_way_out(request)}")


def was_emptied(
    table: str, request: CommitRequest, row: LedgerRow | None, *, has_ledger: bool, has_rows: Callable[[], bool]
) -> FailedForGood | None:
    """Return FailedForGood if the store has committed the dataset before, but the table has no ledger row of it;
    otherwise None.

    Args:
        has_ledger: whether the table has a ledger of the store.
        has_rows: returns whether the table has rows; it may be slow.
    """
    if row is not None or not request.bases or 0 in request.bases:
        return None
    subject = f"table {table} has no ledger row of the dataset, although the store has committed to the table before"
    if not has_ledger and has_rows():
        return FailedForGood(
            f"{subject}. The table has rows, which may be the dataset's. Nothing was written. To do: restore the old"
            " table or its ledger, and release the dataset with retry; if that is impossible, drop the table, and"
            " release the dataset with restart"
        )
    return FailedForGood(f"{subject}: it was dropped and recreated. {_way_out(request)}")


def _way_out(request: CommitRequest) -> str:
    if 0 in request.bases:
        return f"Nothing was written. To do: {_READ_AGAIN}"
    branches = _BRANCHES if request.branch != MAIN_BRANCH else ""
    return (
        "Nothing was written. If the old table can be restored, do so, and release the dataset with retry. To do:"
        f" {_RESTART}{branches}"
    )
