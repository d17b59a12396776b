"""Errors of records and tables that do not fit together."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import DATASET_WAITS, ErrorEntry

ENTRIES = (
    ErrorEntry(
        id="COLUMN_UNSUPPORTED",
        error="ConfigurationError",
        title="The sink does not support a column",
        cause="The format or target has no type for the column, or does not allow its name.",
        impact=DATASET_WAITS,
        action="Cast, rename or drop the column by a converter, or choose another sink.format.",
    ),
    ErrorEntry(
        id="RECORDS_NOT_STORABLE",
        error="ConfigurationError",
        title="Records do not fit the target",
        cause="A value or column of the records does not fit the table, the file format or a folder name.",
        impact=DATASET_WAITS,
        action="Alter the table, cast the column by a converter, or reject the records by a row checker.",
    ),
    ErrorEntry(
        id="SINK_COLUMN_INVALID",
        error="ConfigurationError",
        title="A sink setting names an unsuitable column",
        cause="A setting of the sink names a column that is missing, reserved or of an unsuitable type.",
        impact=DATASET_WAITS,
        action="Correct the setting in section sink that the message names.",
        command="check JOB.yaml",
    ),
    ErrorEntry(
        id="PARTITIONING_INVALID",
        error="ConfigurationError",
        title="Records cannot be partitioned as set",
        cause="The partition column is missing, of an unsuitable type, or has too many values.",
        impact=DATASET_WAITS,
        action="Correct the column in sink.partition_by, or raise sink.max_partitions.",
    ),
    ErrorEntry(
        id="PROVENANCE_INVALID",
        error="ConfigurationError",
        title="Provenance columns are missing or changed",
        cause="A converter dropped or changed the columns that record where each record comes from.",
        impact=DATASET_WAITS,
        action="Keep the columns that the message names unchanged in every converter.",
    ),
    ErrorEntry(
        id="TABLE_UNUSABLE",
        error="ConfigurationError",
        title="The table is missing or cannot be written",
        cause="The table does not exist, cannot be created, or has properties that the sink does not support.",
        impact=DATASET_WAITS,
        action="Create or alter the table that the message names, or set sink.create: true.",
    ),
)
