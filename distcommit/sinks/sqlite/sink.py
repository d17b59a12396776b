"""The sink of tables in an SQLite file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import ClassVar, Literal

import pyarrow as pa

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.interfaces.sink import Abilities
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.support.comparable_addresses import database_address
from distcommit.core.support.settings_model import SettingError, checks
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.base.table_names import database_table_name
from distcommit.sinks.base.target_connections import committing_by
from distcommit.sinks.databases.table_committer import LEDGER, TableCommitter
from distcommit.sinks.databases.table_sink import ANOTHER_TARGET, TableSink
from distcommit.sinks.sqlite.columns import NAMES, column_type
from distcommit.sinks.sqlite.committer import SqliteCommitter
from distcommit.sinks.sqlite.sessions import connected

_MOST_NAME_BYTES = 200
_RESERVED = "sqlite_"


class SqliteSink(TableSink):
    """Tables of an SQLite file.

    Attributes:
        path: absolute path of the file, on a local file system that all executors see. A missing file is created, a
            missing folder is not.
    """

    abilities: ClassVar[Abilities] = Abilities(audit=True)

    type: Literal["sqlite"]
    path: str

    @checks("path")
    @classmethod
    def _is_absolute(cls, path: str) -> str:
        if not path.startswith("/") or path.endswith("/") or not path.isprintable():
            raise SettingError("must be the absolute path of a file, because executors have other working folders")
        return path

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return table and file name, but not the folder, because the file may be moved."""
        return {**super().fixed_settings(), "file": FixedSetting(PurePosixPath(self.path).name, ANOTHER_TARGET)}

    @property
    def writes_to(self) -> str:
        return f"tables {self.table} of {self.path}"

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        database = database_address(f"sqlite:///{self.path}")
        return [Target("table", name, database) for name in (self.table_of(dataset_urn), LEDGER)]

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"table {self.table_of(dataset_urn)} of {self.path}"

    def table_of(self, dataset_urn: str) -> str:
        """Return the table's name in lower case, because SQLite ignores case. A reserved name gets a `_` in front."""
        plain = database_table_name(
            self.table, dataset_urn, most_bytes=_MOST_NAME_BYTES, any_case=False, selected=(LEDGER,)
        )
        return f"_{plain}" if plain.startswith((_RESERVED, f"_{_RESERVED}")) else plain

    def check_schema(self, schema: pa.Schema) -> None:
        NAMES.check(schema.names)
        super().check_schema(schema)
        for field in schema:
            column_type(field)
        compared = {
            "version": (self.version,) if self.version else (),
            "keys": self.keys if self.mode == "mirror" else (),
        }
        for key, names in compared.items():
            for name in names:
                if pa.types.is_decimal(schema.field(name).type):
                    raise ConfigurationError(
                        "SQLite stores decimals as text, which is compared otherwise: 1.0 does not equal 1.00",
                        id="SINK_COLUMN_INVALID",
                        key=key,
                        column=name,
                        todo="convert it with the converter `cast`, or name another column",
                    )

    def check_connection(self) -> str:
        folder = os.path.dirname(self.path)
        written = self.path if os.path.exists(self.path) else folder
        if not os.path.isdir(folder) or not os.access(written, os.W_OK):
            raise ConfigurationError(
                "the SQLite file can't be written",
                path=self.path,
                expected="a file, or an existing folder for it, that this user can write",
                found="a missing folder" if not os.path.isdir(folder) else "no permission",
                todo="create the folder, or correct sink.path or the permissions",
            )
        return f"{self.path} {'exists' if written == self.path else 'will be created'}{self.version_warning}"

    def open_committer(self, context: CommitterContext) -> TableCommitter:
        return committing_by(connected(self.path), lambda connection: SqliteCommitter(connection, self, context))
