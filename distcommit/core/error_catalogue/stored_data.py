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
        action="Restore the file that the message names from a backup.",
        command="store verify JOB.yaml",
    ),
    ErrorEntry(
        id="FORMAT_VERSION_UNKNOWN",
        error="UnknownVersionError",
        title="A stored format has an unknown version",
        cause="Another version of distcommit, or another program, wrote the file.",
        impact="Nothing is changed. Datasets that need the file are not read, and commands that need it fail.",
        action=(
            "Run the version of distcommit that wrote the file, or a newer one. If another program wrote it, restore "
            "the file from a backup."
        ),
        command="--version",
    ),
    ErrorEntry(
        id="STEP_TYPE_UNKNOWN",
        error="UnknownStepTypeError",
        title="A stored commit step has an unknown type",
        cause=(
            "The step's class is not in the modules that this process has imported: the module of the custom sink "
            "(sink.class) was changed, replaced or not installed, or a Python program did not import the module."
        ),
        impact=DATASET_WAITS,
        action=(
            "Restore sink.class and the version of its module that has the step, then run again; in a Python program, "
            "import the module before the store is read. If the module no longer exists, quarantine the dataset and "
            "release the dataset with `accept`: the commit then counts as done in its present state."
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
            "Restore the log from a backup and release the dataset with `retry`; or release the dataset with `accept`,"
            " which loses the unpublished records of the sequence."
        ),
        command="dataset release JOB.yaml DATASET accept",
    ),
    ErrorEntry(
        id="PUBLISHED_FILE_CORRUPT",
        error="CorruptError",
        title="A data file or its footer is corrupt",
        cause="The file was altered, truncated or replaced after it had been written.",
        impact="The command that reads the file ends. Other files are not affected.",
        action="Restore the file that the message names from a backup. `distcommit audit --deep` lists all such files.",
        command="audit JOB.yaml --deep",
    ),
    ErrorEntry(
        id="COMPACTION_NOT_CONSERVED",
        error="CorruptError",
        title="A merged file differs from its inputs",
        cause="A merged file is compared before its commit. Its records, offsets or columns differ from its inputs.",
        impact="Nothing of the dataset is compacted. The old files stay, and ingestion continues.",
        action=(
            "Run `distcommit audit --deep`, which lists damaged files. If all files are intact, report the message as "
            "a defect, and leave the dataset out of the command."
        ),
        command="audit JOB.yaml --deep",
    ),
    ErrorEntry(
        id="COMPACTED_FILE_MISSING",
        error="CorruptError",
        title="A published file disappeared while it was compacted",
        cause="Another program deleted or moved the file.",
        impact="Nothing of the dataset is compacted in this run. Ingestion continues.",
        action=(
            "Restore the file that the message names from a backup, or read its offsets from the source again. "
            "`distcommit audit` lists all missing files."
        ),
        command="audit JOB.yaml",
    ),
    ErrorEntry(
        id="MERGED_FILE_MISSING",
        error="CorruptError",
        title="A merged file is missing",
        cause="Another program deleted or moved a file into which small files were merged.",
        impact="Readers miss the records of the file. The small files still exist and are kept. Ingestion continues.",
        action=(
            "Restore the merged file from a backup. Without a backup, rebuild the store: the rebuild sets the file "
            "aside that marks the small files as merged, so that readers get them again."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="SCHEMA_HISTORY_LOST",
        error="CorruptError",
        title="The stored schema of a dataset is lost",
        cause="The store's record of the dataset's columns is missing or corrupt.",
        impact=DATASET_WAITS,
        action="Restore the file that the message names from a backup of the store, or set the converter's fields.",
    ),
    ErrorEntry(
        id="SNAPSHOT_CORRUPT",
        error="CorruptError",
        title="A snapshot is corrupt",
        cause="The deltas of a snapshot differ from those that its manifest names.",
        impact="The snapshot cannot be read. Runs continue and write new snapshots.",
        action=(
            "Restore the store's folder of snapshots from a backup, or read the snapshot of a later run that commits a "
            "dataset of the bucket."
        ),
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
        action=(
            "Restore the ledger that the message names from a backup of the target, and keep other programs from "
            "writing to the ledger."
        ),
    ),
)
