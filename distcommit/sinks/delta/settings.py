"""The settings of the Delta sink, and what they say of a dataset."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from distcommit.sinks.data_files import local_path
from distcommit.sinks.table_names import DATASET, table_of

Evolution = Literal["none", "add_columns"]


class DeltaSettings(BaseModel):
    """Which tables records go to, and how these are made.

    Attributes:
        location: what tables are folders of: a folder on a file system that this machine has mounted, or
            s3://BUCKET/prefix.
        table: the table's name; `{dataset}` stands for the dataset's, in letters, digits and `_`. Without it all
            datasets share a table.
        create: whether tables that are missing are made, of the records' columns.
        evolve: `add_columns`: new columns are added; `none`: such records fail.
        partition_by: of tables that are made: columns of text, whole numbers, dates or booleans.
        properties: of tables that are made, such as `delta.logRetentionDuration`.
        target_file_bytes: a data file of this size is closed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    location: str
    table: str = DATASET
    create: bool = True
    evolve: Evolution = "none"
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    target_file_bytes: int = Field(default=512 << 20, ge=1 << 16)

    @field_validator("location")
    @classmethod
    def _check_location(cls, value: str) -> str:
        found = (value if value.startswith("s3://") else local_path(value)).rstrip("/")
        if not found or not urlsplit(found).path.strip("/"):
            raise ValueError(f"an absolute path of this machine, file:///... or s3://BUCKET/prefix; found {value!r}")
        return found

    @field_validator("table")
    @classmethod
    def _check_table(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]+", value.replace(DATASET, "d")) or value.startswith("_"):
            raise ValueError(f"letters, digits and _, and {DATASET} for the dataset's name; found {value!r}")
        return value

    def table_of(self, dataset_urn: str) -> str:
        """The table's name: its folder in `location`."""
        return table_of(self.table, dataset_urn)

    @property
    def shares_tables(self) -> bool:
        """Whether all datasets go to one table."""
        return DATASET not in self.table
