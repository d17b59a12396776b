"""Errors of operator commands: releasing, reprocessing, rebuilding, importing."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import NOTHING_CHANGED, ErrorEntry

_RECOVER = "recover JOB.yaml"
_RETRY = "dataset release JOB.yaml DATASET retry"

ENTRIES = (
    ErrorEntry(
        id="DATASET_UNKNOWN",
        error="ConfigurationError",
        title="The store does not know the dataset",
        cause="The URN is misspelled, or no run has read the dataset yet.",
        impact=NOTHING_CHANGED,
        action="Give the URN as `distcommit dataset list` prints it.",
        command="dataset list JOB.yaml",
    ),
    ErrorEntry(
        id="DATASET_ALREADY_KNOWN",
        error="ConfigurationError",
        title="The store knows the dataset already",
        cause="`--new` is for datasets that no run has read yet.",
        impact=NOTHING_CHANGED,
        action="Repeat the command without `--new`.",
        command="dataset set-watermark JOB.yaml DATASET POSITIONS",
    ),
    ErrorEntry(
        id="DATASET_IDLE",
        error="ConflictError",
        title="The dataset has no open sequence",
        cause="The action needs a pending or quarantined sequence, and the dataset's last sequence is done.",
        impact=NOTHING_CHANGED,
        action="Do nothing, because an idle dataset needs no release.",
        command="status JOB.yaml",
    ),
    ErrorEntry(
        id="DATASET_PENDING",
        error="ConflictError",
        title="The dataset has a pending sequence",
        cause="The action is not possible before the pending sequence is committed.",
        impact=NOTHING_CHANGED,
        action=(
            "Commit the pending sequence by the next run or by `distcommit recover`. If neither can ever succeed, "
            "quarantine the dataset."
        ),
        command=_RECOVER,
    ),
    ErrorEntry(
        id="DATASET_IN_QUARANTINE",
        error="ConflictError",
        title="The dataset is quarantined",
        cause="The action is not possible while the dataset is quarantined.",
        impact=NOTHING_CHANGED,
        action="Release the dataset with `retry`, `accept` or `abandon`, then repeat the command.",
        command=_RETRY,
    ),
    ErrorEntry(
        id="DATASET_BEING_ABANDONED",
        error="ConflictError",
        title="The dataset is being abandoned",
        cause="An earlier release with abandon has not finished its rollback.",
        impact=NOTHING_CHANGED,
        action=(
            "Release the dataset with `abandon` again, which resumes the rollback. If the rollback can never succeed, "
            "release the dataset with `accept`."
        ),
        command="dataset release JOB.yaml DATASET abandon",
    ),
    ErrorEntry(
        id="DATASET_NOT_READ",
        error="ConflictError",
        title="Runs no longer read the dataset",
        cause="Several runs in a row could not read the dataset, so that it is stopped.",
        impact=NOTHING_CHANGED,
        action="Release the dataset with `retry`, or set its watermark past the unreadable records.",
        command=_RETRY,
    ),
    ErrorEntry(
        id="SEQUENCE_HELD_BACK",
        error="ConflictError",
        title="The dataset was held back with its run",
        cause="The run publishes all datasets or none, and it was not published.",
        impact=NOTHING_CHANGED,
        action="Run or recover the job, which drops the sequence. The next run reads its records again.",
        command=_RECOVER,
    ),
    ErrorEntry(
        id="TOMBSTONE_NOT_PUBLISHED",
        error="ConflictError",
        title="A replacement is not published completely",
        cause="The sequence replaces files, and the tombstone that supersedes the old files is not published.",
        impact=NOTHING_CHANGED,
        action=(
            "Release the dataset with `abandon`. With `accept`, both the old and the new records would stay published."
        ),
        command="dataset release JOB.yaml DATASET abandon",
    ),
    ErrorEntry(
        id="MAINTENANCE_NOT_POSSIBLE",
        error="ConfigurationError",
        title="The dataset cannot be reprocessed or expired",
        cause="The job's settings exclude the command, or the dataset has nothing to reprocess.",
        impact=NOTHING_CHANGED,
        action=(
            "Change the setting that the message names. `distcommit audit` lists rejected records that can be "
            "reprocessed."
        ),
        command="audit JOB.yaml",
    ),
    ErrorEntry(
        id="REPROCESS_WITH_OPEN_SEQUENCE",
        error="ConflictError",
        title="The dataset has an open sequence",
        cause="A dataset can be reprocessed only between its sequences.",
        impact=NOTHING_CHANGED,
        action=(
            "Commit the pending sequence by `distcommit recover`, or release a quarantined dataset; then reprocess the"
            " dataset."
        ),
        command=_RECOVER,
    ),
    ErrorEntry(
        id="REPROCESS_OF_STOPPED_DATASET",
        error="ConflictError",
        title="No run plans the dataset",
        cause="The dataset is stopped after repeated read failures.",
        impact=NOTHING_CHANGED,
        action="Release the dataset with `retry`, then reprocess the dataset.",
        command=_RETRY,
    ),
    ErrorEntry(
        id="NOTHING_TO_REBUILD",
        error="ConflictError",
        title="There is nothing to rebuild",
        cause="The store is complete and matches its output.",
        impact=NOTHING_CHANGED,
        action="Run the job. `distcommit audit` checks the output.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="REBUILD_NEEDS_OFFSETS",
        error="ConfigurationError",
        title="The output does not record offsets",
        cause="A store is rebuilt from the offsets in published files and in ledgers, and the sink has neither.",
        impact=NOTHING_CHANGED,
        action=(
            "Rebuild with `--keep-watermarks`, then set each dataset's watermark to the last position that the target "
            "has (`distcommit dataset set-watermark`)."
        ),
        command="store rebuild JOB.yaml --keep-watermarks",
    ),
    ErrorEntry(
        id="KEPT_WATERMARKS_NEED_STORE",
        error="ConfigurationError",
        title="There is no store to keep watermarks of",
        cause="`--keep-watermarks` reads the watermarks of the existing store, and the store does not exist.",
        impact=NOTHING_CHANGED,
        action="Rebuild the store from the published files, without `--keep-watermarks`.",
        command="store rebuild JOB.yaml",
    ),
    ErrorEntry(
        id="OFFSETS_NOT_RECORDED",
        error="ConfigurationError",
        title="The sink does not record offsets",
        cause="The command compares offsets in published files or in ledgers, and a sink of the job has neither.",
        impact=NOTHING_CHANGED,
        action="Compare the records at the target with the watermarks that `distcommit status --json` prints.",
        command="status JOB.yaml --json",
    ),
    ErrorEntry(
        id="POSITIONS_INVALID",
        error="ConfigurationError",
        title="Positions are invalid",
        cause="A position is malformed, names an unknown partition or dataset, or is missing for a partition.",
        impact=NOTHING_CHANGED,
        action=(
            "Correct each position that the message names. `distcommit dataset list` prints the datasets with their "
            "present positions."
        ),
        command="dataset list JOB.yaml",
    ),
    ErrorEntry(
        id="GROUP_POSITIONS_UNSUPPORTED",
        error="ConfigurationError",
        title="The source has no consumer groups",
        cause="Positions were requested of a consumer group, which only Kafka has.",
        impact=NOTHING_CHANGED,
        action="Pass the positions in a CSV file.",
        command="migrate import-watermarks JOB.yaml --from POSITIONS.csv",
    ),
    ErrorEntry(
        id="IMPORT_WITH_OPEN_SEQUENCES",
        error="ConflictError",
        title="Datasets have open sequences",
        cause="Watermarks cannot be imported while sequences are pending or quarantined.",
        impact=NOTHING_CHANGED,
        action="Commit pending sequences by `distcommit recover`, release quarantined datasets, then import again.",
        command=_RECOVER,
    ),
    ErrorEntry(
        id="WATERMARKS_NOT_TRANSFERABLE",
        error="ConfigurationError",
        title="Watermarks have no meaning in this job",
        cause="The positions come from another type of source or watermark, or were counted by other settings.",
        impact=NOTHING_CHANGED,
        action="Restore the setting that the message names, or import positions of the source that the job file names.",
    ),
    ErrorEntry(
        id="SOURCE_RECREATED",
        error="ConfigurationError",
        title="The dataset's source was recreated",
        cause="The topic or table was deleted and created again after the watermark had been stored.",
        impact=NOTHING_CHANGED,
        action="Set the watermark to null, then run the job; or set a position of the new topic or table.",
        command="dataset set-watermark JOB.yaml DATASET null",
    ),
)
