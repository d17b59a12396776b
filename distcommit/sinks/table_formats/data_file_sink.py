"""What the sections of sinks have in common whose data files lie where a table has its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator

from distcommit.core.interfaces.sink import Abilities, SinkSettings
from distcommit.sinks.base.committer_sink import GroupsByTable, StoredName
from distcommit.sinks.base.table_names import DATASET

Evolution = Literal["none", "add_columns"]


class DataFileTables(StoredName):
    """Which tables records go to, and how these are made.

    Attributes:
        table: the table's name; `{dataset}` stands for the dataset's, in letters, digits and `_`. Without it all
            datasets share a table.
        create: whether tables that are missing are made, of the records' columns.
        properties: of tables that are made.
        target_file_bytes: a data file of this size is closed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    if TYPE_CHECKING:
        type: str

    table: str = DATASET
    create: bool = True
    properties: dict[str, str] = Field(default_factory=dict)
    target_file_bytes: int = Field(default=512 << 20, ge=1 << 16)

    @field_validator("table")
    @classmethod
    def _check_table(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]+", value.replace(DATASET, "d")):
            raise ValueError(f"letters, digits and _, and {DATASET} for the dataset's name; found {value!r}")
        return value

    @property
    def name(self) -> str:
        """What commits are stored with."""
        return self.name_of(self.type)

    @property
    def shares_tables(self) -> bool:
        """Whether all datasets go to one table."""
        return DATASET not in self.table


class DataFileSink(DataFileTables, GroupsByTable, SinkSettings):
    """A sink of such tables."""

    discards: ClassVar[bool] = True
    abilities: ClassVar[Abilities] = Abilities(audit=True)

    def asked_columns(self) -> Sequence[str]:
        """None: by `partition_by` and `sort_by` tables are made, and those that are there have their own."""
        return ()
