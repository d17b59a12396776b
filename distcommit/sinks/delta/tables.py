"""The tables of a location: loading them, and committing to the very version that was loaded.

deltalake's own retry commits again on top of what others have committed meanwhile, and takes an app transaction of any
version. So it is switched off here, and whoever meets a conflict loads the table again, and asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from distcommit.sinks.delta.locations import opened

_LOG = "_delta_log"


class DeltaTables:
    """The tables of a location.

    Args:
        location: an absolute path, or s3://BUCKET/prefix.
    """

    def __init__(self, location: str) -> None:
        self.location = opened(location)

    def uri(self, name: str) -> str:
        """The table's location, or that of anything in it."""
        return self.location.uri(name)

    def load(self, name: str) -> DeltaTable | None:
        """The table as it is now, None if there is none.

        Raises:
            SinkUnavailableError: if the location itself is not there.
        """
        try:
            return self._load(name)
        except TableNotFoundError:
            self.location.check()
            if not self._has_versions(name):
                return None
        except OSError:
            self.location.check()
            raise
        return self._load(name)  # made just now; or its log is damaged

    def _load(self, name: str) -> DeltaTable:
        return DeltaTable(self.uri(name), storage_options=self.location.options)

    def is_there(self, name: str) -> bool:
        """Whether there is a table of that name."""
        return DeltaTable.is_deltatable(self.uri(name), self.location.options)

    def _has_versions(self, name: str) -> bool:
        """Whether any are there, and not only what somebody has begun to write."""
        return any(entry.endswith((".json", ".parquet")) for entry in self.location.names(f"{name}/{_LOG}"))

    def names(self) -> list[str]:
        """All tables."""
        self.location.check()
        return sorted(name for name in self.location.names("") if self.location.names(f"{name}/{_LOG}"))

    def probe(self) -> None:
        """Raises if the location is not there, or can't be read, or takes no bytes."""
        self.location.probe()

    def commit(
        self,
        table: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        transaction: tuple[str, int],
        trace: Mapping[str, str],
    ) -> bool:
        """Commits on top of the version that was loaded; False if others were first, and nothing was changed.

        Args:
            table: as it was loaded.
            actions: files that come and go.
            transaction: an app transaction's id and version, which change with it.
            trace: what the commit says for people.

        Raises:
            Exception: it is not known what became of it.
        """
        properties = CommitProperties(
            custom_metadata=dict(trace), max_commit_retries=0, app_transactions=[Transaction(*transaction)]
        )
        try:
            table.create_write_transaction(
                list(actions),
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=properties,
            )
        except CommitFailedError:
            return False
        return True


def table_id(table: DeltaTable) -> str:
    """The table's identity: one that is made again in its place has another."""
    return str(table.metadata().id)
