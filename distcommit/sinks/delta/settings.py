"""The settings of the Delta sink."""

from __future__ import annotations

from urllib.parse import urlsplit

from distcommit.core.support.settings_model import SettingError, checks
from distcommit.sinks.base.table_names import plain_table_name
from distcommit.sinks.table_formats.data_file_sink import DataFileSink, Evolution
from distcommit.sinks.table_formats.data_files import local_path


class DeltaSettings(DataFileSink):
    """The Delta tables of datasets, and the creation of missing tables.

    Attributes:
        location: folder with a folder for each table: an absolute path of a mounted file system, or s3://BUCKET/prefix.
        evolve: handling of columns that the table lacks: `none` refuses the records; `add_columns` adds the columns.
        partition_by: partition columns of created tables: of text, whole numbers, dates or booleans.
    """

    location: str
    evolve: Evolution = "none"
    partition_by: tuple[str, ...] = ()

    @checks("location")
    @classmethod
    def _check_location(cls, value: str) -> str:
        location = (value if value.startswith("s3://") else local_path(value)).rstrip("/")
        if not location or not urlsplit(location).path.strip("/"):
            raise SettingError("must be an absolute path, file:///... or s3://BUCKET/prefix")
        return location

    @checks("table")
    @classmethod
    def _is_read(cls, value: str) -> str:
        if value.startswith("_"):
            raise SettingError("must not begin with _, because readers skip such folders")
        return value

    def table_of(self, dataset_urn: str) -> str:
        return plain_table_name(self.table, dataset_urn)
