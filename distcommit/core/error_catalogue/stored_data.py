"""Errors of stored bytes: formats, documents, published files, snapshots and schemas."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import DATASET_WAITS, ErrorEntry

ENTRIES = (
    ErrorEntry(
        id="STORED_DATA_CORRUPT",
        error="CorruptError",
        title="A stored file is corrupt",
        cause="The file was truncated, altered, or written by another program.",
        impact="Datasets, readers and commands that need the file stop. Other datasets continue.",
        action="Restore the file from a backup.",
        command="store verify JOB.yaml",
    ),
    ErrorEntry(
        id="FORMAT_VERSION_UNKNOWN",
        error="UnknownVersionError",
        title="A stored format has an unknown version",
        cause="Another version of distcommit wrote the file, or the file is not one of distcommit.",
        impact="Nothing is changed. What depends on the file waits.",
        action="Run the version of distcommit that wrote the file, or a newer one.",
        command="--version",
    ),
    ErrorEntry(
        id="STEP_TYPE_UNKNOWN",
        error="UnknownStepTypeError",
        title="A stored commit step has an unknown type",
        cause="The module that registers the type was not imported.",
        impact=DATASET_WAITS,
        action=(
            "Import the module before the store is read. If the module is gone, quarantine the dataset and release it"
            " with accept."
        ),
        command="dataset quarantine JOB.yaml DATASET",
    ),
    ErrorEntry(
        id="STEP_CORRUPT",
        error="CorruptError",
        title="A stored commit step is corrupt",
        cause="The stored bytes of the step do not match its class.",
        impact=DATASET_WAITS,
        action=(
            "Restore the log from a backup and release the dataset with retry; or release it with accept, which loses"
            " its unpublished records."
        ),
        command="dataset release JOB.yaml DATASET accept",
    ),
    ErrorEntry(
        id="PUBLISHED_FILE_CORRUPT",
        error="CorruptError",
        title="A data file or its footer is corrupt",
        cause="The file was altered, truncated or replaced after it had been written.",
        impact="The command that reads the file ends. Other files are not affected.",
        action="Restore the file from a backup.",
        command="audit JOB.yaml --deep",
    ),
    ErrorEntry(
        id="SCHEMA_HISTORY_LOST",
        error="CorruptError",
        title="The stored schema of a dataset is lost",
        cause="The store's record of the dataset's columns is missing or corrupt.",
        impact=DATASET_WAITS,
        action="Restore the file from a backup of the store, or declare the columns in the job file.",
    ),
    ErrorEntry(
        id="SNAPSHOT_CORRUPT",
        error="CorruptError",
        title="A snapshot is corrupt",
        cause="The deltas of a snapshot differ from those that its manifest names.",
        impact="The snapshot cannot be read. Runs continue and write new snapshots.",
        action="Restore the folder from a backup, or read the snapshot of the next run.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="RUN_STATISTICS_CORRUPT",
        error="CorruptError",
        title="A table of run statistics is corrupt",
        cause="A file below the store's run history is truncated or altered.",
        impact="The statistics of one run are incomplete. No run depends on them.",
        action="Delete the file that the message names.",
    ),
    ErrorEntry(
        id="LEDGER_CORRUPT",
        error="CorruptError",
        title="The ledger of a target is damaged",
        cause="Rows or files of the ledger are missing, or another program wrote them.",
        impact="Nothing is written to the target until its ledger can be read.",
        action="Restore the ledger, or find out which program wrote it.",
    ),
)
