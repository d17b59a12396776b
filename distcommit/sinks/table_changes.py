"""Answers to commits of data files whose table was altered, dropped or recreated after the files were written."""

from __future__ import annotations

from collections.abc import Sequence

from distcommit.model.committer import FailedForGood

_READ_AGAIN = "release the dataset with abandon: the next run reads the same records again"


def was_altered(table: str, problems: Sequence[str]) -> FailedForGood:
    """Refuse files that do not fit the table as it is now."""
    return FailedForGood(
        f"table {table} was altered after the data files were written: {'; '.join(problems[:3])}. Nothing was"
        f" written. To do: {_READ_AGAIN}, and writes them as the table is now"
    )
