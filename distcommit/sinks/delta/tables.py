"""Access to Delta tables. A change is committed only on the version that was loaded.

So deltalake's own retry is disabled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from distcommit.sinks.delta.locations import opened

_LOG = "_delta_log"


class DeltaTables:
    """The tables of a location."""

    def __init__(self, location: str) -> None:
        self.location = opened(location)

    def uri(self, name: str) -> str:
        return self.location.uri(name)

    def load(self, name: str) -> DeltaTable | None:
        """Load the present version; None if there is none. Raises SinkUnavailableError if the location is missing or
        unavailable."""
        try:
            return self._load(name)
        except TableNotFoundError:
            self.location.check()
            if not self._has_versions(name):
                return None
        except OSError:
            self.location.check()
            raise
        return self._load(name)  # created just now; or its log is damaged

    def _load(self, name: str) -> DeltaTable:
        return DeltaTable(self.uri(name), storage_options=self.location.options)

    def _has_versions(self, name: str) -> bool:
        return any(entry.endswith((".json", ".parquet")) for entry in self.location.names(f"{name}/{_LOG}"))

    def names(self) -> list[str]:
        self.location.check()
        return sorted(name for name in self.location.names("") if self.location.names(f"{name}/{_LOG}"))

    def commit(
        self,
        table: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        transaction: tuple[str, int],
        trace: Mapping[str, str],
    ) -> bool:
        """Commit actions and the app transaction on the loaded version; `trace` is for operators. Return False, without
        any change, if another writer was first. After an exception the outcome is unknown."""
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
    return str(table.metadata().id)
