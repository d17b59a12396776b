"""Tables as folders of a location: loading them, and committing to the very version that was loaded.

deltalake's own retry commits again on top of what others have committed meanwhile, and takes an app transaction of any
version. So it is switched off here, and whoever meets a conflict loads the table again, and asks again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from distcommit.model.errors import SinkUnavailableError

_LOG = "_delta_log"


class DeltaTables:
    """The tables of a location.

    Args:
        location: an absolute path.
    """

    def __init__(self, location: str) -> None:
        self._location = location

    def path(self, name: str) -> str:
        """The table's folder, or that of anything in it."""
        return f"{self._location}/{name}"

    def load(self, name: str) -> DeltaTable | None:
        """The table as it is now, None if there is none.

        Raises:
            SinkUnavailableError: if the location itself is not there.
        """
        try:
            return DeltaTable(self.path(name))
        except TableNotFoundError:
            self.probe()
            if not self._has_versions(name):
                return None
        return DeltaTable(self.path(name))  # made just now; or its log is damaged

    def _has_versions(self, name: str) -> bool:
        """Whether any are there, and not only what somebody has begun to write."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return any(entry.endswith((".json", ".parquet")) for entry in os.listdir(self.path(f"{name}/{_LOG}")))
        return False

    def names(self) -> list[str]:
        """All tables."""
        self.probe()
        return sorted(name for name in os.listdir(self._location) if os.path.isdir(self.path(f"{name}/{_LOG}")))

    def probe(self) -> None:
        """Raises if the location is not there, or can't be read or written."""
        try:
            os.listdir(self._location)
            fine = os.access(self._location, os.W_OK)
            found = "it can't be written to"
        except OSError as error:
            fine, found = False, str(error)
        if not fine:
            raise SinkUnavailableError(
                "the folder of the Delta tables is not there, or can't be used",
                path=self._location,
                found=found,
                todo="make it, or mount what it is on",
            )

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
