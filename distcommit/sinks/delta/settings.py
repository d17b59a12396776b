"""The settings of the Delta sink, and what they say of a dataset."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import field_validator

from distcommit.sinks.base.table_names import table_of
from distcommit.sinks.table_formats.data_file_sink import DataFileTables, Evolution
from distcommit.sinks.table_formats.data_files import local_path


class DeltaSettings(DataFileTables):
    """Which tables records go to, and how these are made.

    Attributes:
        location: what tables are folders of: a folder on a file system that this machine has mounted, or
            s3://BUCKET/prefix.
        evolve: `add_columns`: new columns are added; `none`: such records fail.
        partition_by: of tables that are made: columns of text, whole numbers, dates or booleans.
    """

    location: str
    evolve: Evolution = "none"
    partition_by: tuple[str, ...] = ()

    @field_validator("location")
    @classmethod
    def _check_location(cls, value: str) -> str:
        found = (value if value.startswith("s3://") else local_path(value)).rstrip("/")
        if not found or not urlsplit(found).path.strip("/"):
            raise ValueError(f"an absolute path of this machine, file:///... or s3://BUCKET/prefix; found {value!r}")
        return found

    @field_validator("table")
    @classmethod
    def _is_read(cls, value: str) -> str:
        if value.startswith("_"):
            raise ValueError(f"begins with no _, as readers pass over such folders; found {value!r}")
        return value

    def table_of(self, dataset_urn: str) -> str:
        """The table's name: its folder in `location`."""
        return table_of(self.table, dataset_urn)
