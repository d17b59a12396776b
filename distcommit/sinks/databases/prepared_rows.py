"""Rows that a writer has a database prepare: a transaction that waits there, whatever dies, to be committed by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Protocol

import pyarrow as pa

from distcommit.core.interfaces.committer import CommitterContext, LostAttempt
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Prepared, StagingArea
from distcommit.sinks.databases.staged_rows import StagedRows, files_of


class Preparing(Protocol):
    """What prepares transactions at a database, and takes them away again."""

    def begin(self, epoch: int) -> None:
        """Told of a run before its writers prepare anything.

        Raises:
            ConfigurationError: if the server can't prepare transactions.
            FencedError: if a newer run writes there.
        """
        ...

    def prepare(self, attempt: AttemptIdentity, staged: Mapping[str, Any]) -> dict[str, Any]:
        """Has the database prepare a transaction with these rows, durably; the commit info of it.

        Args:
            attempt: whose rows they are.
            staged: what `StagedRows` says of them.
        """
        ...

    def discard(self, lost: list[LostAttempt]) -> None:
        """As `SinkCommitter.discard`."""
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...


class PreparedRows(StagedRows):
    """Stages batches as they come. In the end they are sent to the database at once, so that no transaction is open as
    long as records are read.

    Args:
        opens: what prepares, with a connection of its own.
        attempt: whose rows they are.
        area: where they wait.
        origin: where they come from.
        ledger, check: as of `StagedRows`.
    """

    def __init__(
        self,
        opens: Callable[[CommitterContext], Preparing],
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
        """Takes away what it may have prepared: no attempt will name it, and it holds locks."""
        super().abort()
        if self._has_begun:
            attempt, folder = self._attempt, self._area.prefix
            with closing(self._opens(self._context)) as preparing:
                preparing.discard([LostAttempt(attempt.epoch, attempt.work_unit_id, attempt.attempt, folder)])
