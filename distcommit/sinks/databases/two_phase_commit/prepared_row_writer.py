"""Writer of two-phase commit, whose prepared transactions survive crashes of writer and server."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from distcommit.core.interfaces.committer import AbortedAttempt, CommitterContext, releasing
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Prepared, StagingArea
from distcommit.sinks.databases.staged_rows import StagedRows, files_of
from distcommit.sinks.databases.two_phase_commit.prepared_transactions import TwoPhaseCommitter


class PreparedRows(StagedRows):
    """Writer that stages batches in files and prepares them at the end, so that no transaction is open while reading.
    `opens` opens a committer with its own connection."""

    def __init__(
        self,
        opens: Callable[[CommitterContext], TwoPhaseCommitter],
        attempt: AttemptIdentity,
        area: StagingArea,
        origin: Origin,
        ledger: Callable[[], str],
        check: Callable[[pa.Schema], None],
    ) -> None:
        super().__init__(area, origin, ledger, check)
        staging_root = area.folder.removesuffix(f"/{area.prefix}")
        self._context = CommitterContext(
            area.fs, staging_root, area.output_root, attempt.store_id, metrics=attempt.metrics
        )
        self._opens, self._attempt, self._has_begun = opens, attempt, False

    def prepare_commit(self) -> Prepared:
        staged = super().prepare_commit()
        if not staged.infos:
            return staged
        (info,) = staged.infos
        self._has_begun = True
        with releasing(self._opens(self._context)) as preparing:
            prepared = preparing.prepare(self._attempt, info)
        for path, _ in files_of([info]):
            self._area.fs.delete(f"{self._context.staging_root}/{path}")
        return Prepared([prepared])

    def abort(self) -> None:
        """Roll back the prepared transaction, because it holds locks."""
        super().abort()
        if self._has_begun:
            attempt, folder = self._attempt, self._area.prefix
            with releasing(self._opens(self._context)) as preparing:
                preparing.abort([AbortedAttempt(attempt.epoch, attempt.work_unit_id, attempt.attempt, folder)])
