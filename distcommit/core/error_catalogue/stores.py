"""Errors of a store that does not match its folders, its output or the program."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import DATASET_WAITS, NO_RUN_BEGINS, NOTHING_CHANGED, ErrorEntry

ENTRIES = (
    ErrorEntry(
        id="STORE_NOT_FOUND",
        error="ConfigurationError",
        title="The store does not exist",
        cause="`paths.store` is wrong, or no run of the job has begun yet.",
        impact=NOTHING_CHANGED,
        action="Correct paths.store, or run the job.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="STORE_LOST",
        error="StaleStoreError",
        title="The output has no store",
        cause="The output has published files, but the store does not exist.",
        impact=NO_RUN_BEGINS,
        action="Correct paths.store or paths.output. If the store is lost, rebuild it from the published files.",
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="STORE_OUTPUT_MISMATCH",
        error="StaleStoreError",
        title="Store and output do not belong together",
        cause="The store or the output was restored, moved or replaced.",
        impact=NO_RUN_BEGINS,
        action="Restore the newest backup of the store and of the output, or correct paths.store and paths.output.",
        command="status JOB.yaml",
    ),
    ErrorEntry(
        id="STORE_OLDER_THAN_OUTPUT",
        error="StaleStoreError",
        title="The store is older than its output",
        cause="The store was restored from a copy. A run on it would publish records again.",
        impact=NO_RUN_BEGINS,
        action="Restore the newest store. If the newest store is lost, rebuild the store from the published files.",
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="OUTPUT_OLDER_THAN_STORE",
        error="StaleStoreError",
        title="The output is older than its store",
        cause="The output was restored from a copy, emptied or replaced.",
        impact="No run begins. The output may lack published records.",
        action=(
            "Restore the newest output with its folder .distcommit. If the output is lost or was removed on purpose, "
            "rebuild the store with `--keep-watermarks`. The job then continues at its watermarks: missing records "
            "are published again only where you set a watermark back."
        ),
        command="store rebuild JOB.yaml --keep-watermarks",
    ),
    ErrorEntry(
        id="STAGING_OF_ANOTHER_STORE",
        error="StaleStoreError",
        title="The staging folder lacks pending files",
        cause="`paths.staging` is another folder than the one with the staged files of pending commits.",
        impact=NO_RUN_BEGINS,
        action=(
            "Mount the disk of paths.staging, or correct paths.staging. If the folder is lost, rebuild the store with "
            "`--keep-watermarks`. Datasets whose pending files are lost are then quarantined until you release them."
        ),
        command="store rebuild JOB.yaml --keep-watermarks",
    ),
    ErrorEntry(
        id="FOLDER_OF_ANOTHER_STORE",
        error="StaleStoreError",
        title="The folder belongs to another store",
        cause="The folder was filled from another store of the same job.",
        impact=NO_RUN_BEGINS,
        action=(
            "Set paths.store to the store that the folder was filled from, or restore that store. If that store is "
            "lost, rebuild it from the published files."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="FOLDER_OF_ANOTHER_JOB",
        error="ConfigurationError",
        title="The folder belongs to another job",
        cause="Another job has claimed the folder.",
        impact=NO_RUN_BEGINS,
        action=(
            "Set paths.store, paths.staging and paths.output to folders of this job alone, or restore the former name "
            "in job."
        ),
    ),
    ErrorEntry(
        id="STORE_MOVED",
        error="ConflictError",
        title="The number of buckets was changed meanwhile",
        cause="Another process changed the number of buckets after this one had opened the store.",
        impact=NOTHING_CHANGED,
        action="Repeat the command, which opens the store again.",
    ),
    ErrorEntry(
        id="MOVE_IN_PROGRESS",
        error="ConflictError",
        title="A change of buckets or settings is unfinished",
        cause="An earlier `distcommit store rebucket` has not finished.",
        impact="Nothing else may change the job until the change is finished.",
        action=(
            "Repeat `distcommit store rebucket` with the same number of buckets and settings, then repeat this command."
        ),
        command="store rebucket JOB.yaml --buckets N",
    ),
    ErrorEntry(
        id="MOVE_WITH_OPEN_SEQUENCES",
        error="ConflictError",
        title="The store has unfinished commits",
        cause="`distcommit store rebucket` needs a store without pending and quarantined commits.",
        impact=NOTHING_CHANGED,
        action=(
            "Complete pending commits by `distcommit recover`, release quarantined datasets by `distcommit dataset "
            "release`, then repeat the command."
        ),
        command="recover JOB.yaml",
    ),
    ErrorEntry(
        id="RENAME_OF_STOPPED_DATASET",
        error="ConflictError",
        title="A stopped dataset cannot be renamed",
        cause="Runs no longer read the dataset after repeated read failures.",
        impact=NOTHING_CHANGED,
        action="Release the dataset with `retry`, run the job with the former source.dataset, then repeat the command.",
        command="dataset release JOB.yaml DATASET retry",
    ),
    ErrorEntry(
        id="RENAMED_PARTS_DIFFER",
        error="ConflictError",
        title="Parts of a renamed dataset do not match",
        cause=(
            "Several datasets would become one, and the topic was recreated after the position of some of them had "
            "been stored."
        ),
        impact=NOTHING_CHANGED,
        action=(
            "Run the job with the former source.dataset until every partition has a position in the recreated topic, "
            "then repeat the command."
        ),
    ),
    ErrorEntry(
        id="JOB_LOG_OLDER_THAN_LOGS",
        error="StaleStoreError",
        title="The job log is older than bucket logs",
        cause="The job log was restored from a copy.",
        impact=NO_RUN_BEGINS,
        action=(
            "Restore the newest backup of the job log. Without a backup, move the store's folder away and rebuild the "
            "store."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="STORE_MARKERS_CORRUPT",
        error="CorruptError",
        title="The store cannot be identified",
        cause="Neither store.json nor an ownership file (`.distcommit/owner.json` in output and staging) can be read.",
        impact=NO_RUN_BEGINS,
        action=(
            "Restore store.json from a backup. Without a backup, delete the ownership files that the message names, "
            "move the store's folder away, then rebuild the store."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="STORE_MARKER_CORRUPT",
        error="CorruptError",
        title="The file store.json is corrupt",
        cause="`store.json`, which names the job of the store, is truncated or altered.",
        impact=NO_RUN_BEGINS,
        action="Rebuild the store, which writes store.json again; or restore store.json from a backup.",
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="FOLDER_CLAIM_CORRUPT",
        error="CorruptError",
        title="The ownership file of a folder is corrupt",
        cause="The file `.distcommit/owner.json`, which names the job that owns the folder, is truncated or altered.",
        impact=NO_RUN_BEGINS,
        action=(
            "Rebuild the store, which writes the claim again; or restore the file that the message names from a backup."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="FIXED_SETTINGS_CORRUPT",
        error="CorruptError",
        title="The recorded settings are corrupt",
        cause="The store's newest record of fixed settings is truncated or altered.",
        impact=NO_RUN_BEGINS,
        action=(
            "Restore the file that the message names from a backup; or restore the job file of the newest run, then "
            "rebuild the store."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="JOB_LOG_DAMAGED",
        error="ConflictError",
        title="The log of an all-or-nothing job is damaged",
        cause="The job log is unreadable. It records the decision to publish sealed datasets.",
        impact=NOTHING_CHANGED,
        action=(
            "Restore the newest backup of the job log. Without a backup, move the store's folder away and rebuild the "
            "store."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="LOG_SEGMENT_MISSING",
        error="CorruptError",
        title="A log segment is missing",
        cause="A file of a bucket's log or of the job log was deleted.",
        impact="Runs skip the datasets of the log. If it is the job log, no run begins.",
        action=(
            "Restore the file that the message names from a backup. Without a backup, rebuild the store from the "
            "published files."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="LOG_SEGMENT_CORRUPT",
        error="CorruptError",
        title="A log segment is corrupt",
        cause="A file of a bucket's log or of the job log is truncated or altered.",
        impact="Runs skip the datasets of the log. If it is the job log, no run begins.",
        action=(
            "Restore the file that the message names from a backup. Without a backup, rebuild the store from the "
            "published files."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="LOG_TAIL_LOST",
        error="LostTailError",
        title="A bucket's log lost its newest segments",
        cause="The newest segment files of the log are missing: the job log records a later end of the log.",
        impact="Runs and operator actions skip the bucket's datasets. Published data is not affected.",
        action=(
            "Restore the newest segments of the log that the message names. Without a backup, rebuild the store from "
            "the published files."
        ),
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="EARLIER_READS_UNKNOWN",
        error="SourceError",
        title="It is unknown which datasets were read before",
        cause=(
            "The log of a bucket cannot be read. Without the log, the source cannot distinguish renamed datasets from "
            "new ones."
        ),
        impact=DATASET_WAITS,
        action="Repair the log that the message names (`distcommit store verify` gives the remedy), then run again.",
        command="store verify JOB.yaml",
    ),
    ErrorEntry(
        id="FOREIGN_FILE_FOUND",
        error="CorruptError",
        title="A foreign file is at a reserved path",
        cause="A path of the store that the command must create exists with other content.",
        impact=NOTHING_CHANGED,
        action="Stop the program that created the file, move the file away, then repeat the command.",
    ),
)
