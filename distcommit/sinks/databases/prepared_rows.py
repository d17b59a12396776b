"""Rows in a prepared transaction: it survives its writer and the server, and is committed or rolled back by its
name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Protocol

import pyarrow as pa

from distcommit.core.interfaces.committer import AbortedAttempt, CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Prepared, StagingArea
from distcommit.sinks.databases.staged_rows import StagedRows, files_of


class PreparedRowsCommitter(Protocol):
    """Prepares transactions at a database, and rolls them back."""

    def begin(self, epoch: int) -> None:
        """Announce a run before its writers prepare anything.

        Raises:
            ConfigurationError: if the server can't prepare transactions.
            FencedError: if a newer run writes to the database.
        """
        ...

    def prepare(self, attempt: AttemptIdentity, staged: Mapping[str, Any]) -> dict[str, Any]:
        """Prepare a transaction with these rows durably, and return its commit info.

        Args:
            attempt: the attempt that has staged the rows.
            staged: the commit info of `StagedRows`.
        """
        ...

    def discard(self, aborted_attempts: list[AbortedAttempt]) -> None:
        """Roll back what aborted attempts have prepared. See `SinkCommitter.discard`."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class PreparedRows(StagedRows):
    """Stages batches in files, and sends all to the database at the end, so that no transaction is open while records
    are read.

    Args:
        opens: opens a `PreparedRowsCommitter` with a connection of its own.
        attempt: the attempt that writes the rows.
        area: the attempt's staging folder.
        origin: the origin of the rows.
        ledger, check: see `StagedRows`.
    """

    def __init__(
        self,
        opens: Callable[[CommitterContext], PreparedRowsCommitter],
        attempt: AttemptIdentity,
        area: StagingArea,
        origin: Origin,
        ledger: Callable[[], str],
        check: Callable[[pa.Schema], None],
    ) -> None:
        super().__init__(area, origin, ledger, check)
        staging_root = area.folder.removesuffix(f"/{area.prefix}")
        self._context = CommitterContext(area.fs, staging_root, area.output_root, attempt.store_id)
        self._opens, self._attempt, self._has_begun = opens, attempt, False

    def prepare_commit(self) -> Prepared:
        staged = super().prepare_commit()
        if not staged.infos:
            return staged
        (info,) = staged.infos
        self._has_begun = True
        with closing(self._opens(self._context)) as preparing:
            prepared = preparing.prepare(self._attempt, info)
        for path, _ in files_of([info]):
            self._area.fs.delete(f"{self._context.staging_root}/{path}")
        return Prepared([prepared])

    def abort(self) -> None:
        """Roll back the prepared transaction, which no commit will name and which holds locks."""
        super().abort()
        if self._has_begun:
            attempt, folder = self._attempt, self._area.prefix
            with closing(self._opens(self._context)) as preparing:
                preparing.discard([AbortedAttempt(attempt.epoch, attempt.work_unit_id, attempt.attempt, folder)])
