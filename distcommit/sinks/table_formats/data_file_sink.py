"""Base class of settings of the Iceberg and Delta sinks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from distcommit.core.interfaces.sink import Abilities, SinkSettings
from distcommit.core.support.settings_model import SettingError, checks
from distcommit.sinks.base.committer_sink import GroupsByTable, StoredName
from distcommit.sinks.base.table_names import DATASET

Evolution = Literal["none", "add_columns"]


class DataFileSink(StoredName, GroupsByTable, SinkSettings):
    """The tables of datasets, and the creation of missing tables.

    Attributes:
        table: the table's name, of letters, digits and `_`; `{dataset}` stands for the dataset's name. Without it all
            datasets share a table.
        create: whether missing tables are created, with the records' columns.
        properties: properties of created tables.
        target_file_bytes: size at which a data file is closed, in bytes.
    """

    prepares_at_target: ClassVar[bool] = True
    abilities: ClassVar[Abilities] = Abilities(audit=True)

    table: str = DATASET
    create: bool = True
    properties: dict[str, str] = Field(default_factory=dict)
    target_file_bytes: int = Field(default=512 << 20, ge=1 << 16)

    @checks("table")
    @classmethod
    def _check_table(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]+", value.replace(DATASET, "d")):
            raise SettingError(f"must be of letters, digits and _, and {DATASET} for the dataset's name")
        return value

    @property
    def name(self) -> str:
        return self.name_of(self.type)

    def required_columns(self) -> Sequence[str]:
        """Return no columns, because `partition_by` and `sort_by` apply to created tables only."""
        return ()
