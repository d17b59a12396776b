"""Base class of committers whose connections come from the process's pool."""

from __future__ import annotations

from distcommit.core.interfaces.committer import CommitOutcome, CommitterContext
from distcommit.sinks.databases.connection_pool import Lease
from distcommit.sinks.databases.ledger_table_committer import LedgerTableCommitter
from distcommit.sinks.databases.server_sink import ServerSink


class ServerCommitter(LedgerTableCommitter):
    """Committer on a leased connection; a second one is leased on demand.

    Attributes:
        is_reusable: whether `release` returns the connections instead of closing them.
    """

    is_reusable = True
    _second: Lease | None = None

    def __init__(self, leased: Lease, settings: ServerSink, context: CommitterContext) -> None:
        super().__init__(settings, context)
        self._leased, self._server = leased, settings

    def second(self) -> Lease:
        if self._second is None:
            self._second = self._server.lease(self._context)
        return self._second

    def close_second(self) -> None:
        """Close the second connection; the next use leases another one."""
        if self._second is not None:
            self._second.close()
        self._second = None

    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        self.is_reusable = False  # a session may store the rights that its user had
        return super().outcome_of(error)

    def close(self) -> None:
        self.close_second()
        self._leased.close()

    def release(self) -> None:
        if not self.is_reusable:
            self.close()
            return
        if self._second is not None:
            self._second.release()
        self._leased.release()
