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
        title="The dataset has no unfinished commit",
        cause="The command needs a pending or quarantined commit, and the last commit of the dataset is complete.",
        impact=NOTHING_CHANGED,
        action="Do nothing, because an idle dataset needs no release.",
        command="status JOB.yaml",
    ),
    ErrorEntry(
        id="DATASET_PENDING",
        error="ConflictError",
        title="The dataset has a pending commit",
        cause=(
            "A commit of the dataset is sealed and not yet complete. The command is possible only after its completion."
        ),
        impact=NOTHING_CHANGED,
        action=(
            "Complete the commit by the next run or by `distcommit recover`. If neither can ever succeed, quarantine "
            "the dataset by `distcommit dataset quarantine`, then release it."
        ),
        command=_RECOVER,
    ),
    ErrorEntry(
        id="DATASET_IN_QUARANTINE",
        error="ConflictError",
        title="The dataset is quarantined",
        cause=(
            "A commit of the dataset is unfinished, and runs skip the dataset until an operator releases it. The "
            "command is not possible before."
        ),
        impact=NOTHING_CHANGED,
        action=(
            "Correct the cause that `distcommit status` prints, release the dataset with `retry`, then repeat the "
            "command. If the cause cannot be corrected, release it with `abandon`, so that the next run reads the "
            "records again. `accept` loses the unpublished records."
        ),
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
            "release the dataset with `accept`, which loses the unpublished records. A commit that only publishes "
            "files and replaces others cannot be accepted; its rollback can always be repeated."
        ),
        command="dataset release JOB.yaml DATASET abandon",
    ),
    ErrorEntry(
        id="DATASET_NOT_READ",
        error="ConflictError",
        title="Runs no longer read the dataset",
        cause="Several runs in a row could not read the dataset, so that it is stopped.",
        impact=NOTHING_CHANGED,
        action=(
            "Correct the cause that `distcommit status` prints and release the dataset with `retry`; or set its "
            "watermark past the unreadable records, which skips them."
        ),
        command=_RETRY,
    ),
    ErrorEntry(
        id="SEQUENCE_HELD_BACK",
        error="ConflictError",
        title="The dataset was held back with its run",
        cause="The run publishes all datasets or none, and it has not decided to publish.",
        impact=NOTHING_CHANGED,
        action="Run or recover the job, which discards the commit. The next run reads its records again.",
        command=_RECOVER,
    ),
    ErrorEntry(
        id="TOMBSTONE_NOT_PUBLISHED",
        error="ConflictError",
        title="A replacement is not published completely",
        cause=(
            "The commit replaces published files, and is being abandoned; or the file that marks the old ones as "
            "replaced (the tombstone) is not published; or the commit compacts files, and the merged file is not "
            "published."
        ),
        impact=NOTHING_CHANGED,
        action=(
            "Release the dataset with `abandon`. With `accept`, both the old and the new records would stay published, "
            "or the records of compacted files would be lost."
        ),
        command="dataset release JOB.yaml DATASET abandon",
    ),
    ErrorEntry(
        id="MAINTENANCE_NOT_POSSIBLE",
        error="ConfigurationError",
        title="The dataset cannot be reprocessed, expired or compacted",
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
        title="The dataset has an unfinished commit",
        cause="Rejected records can be processed again only while no commit of the dataset is pending or quarantined.",
        impact=NOTHING_CHANGED,
        action=(
            "Complete a pending commit by `distcommit recover`, or release the quarantined dataset by `distcommit "
            "dataset release`; then repeat the command."
        ),
        command=_RECOVER,
    ),
    ErrorEntry(
        id="REPROCESS_OF_STOPPED_DATASET",
        error="ConflictError",
        title="Runs no longer read the dataset",
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
        title="Datasets have unfinished commits",
        cause="Watermarks cannot be imported while a commit of a dataset is pending or quarantined.",
        impact=NOTHING_CHANGED,
        action=(
            "Complete pending commits by `distcommit recover`, release quarantined datasets by `distcommit dataset "
            "release`, then import again."
        ),
        command=_RECOVER,
    ),
    ErrorEntry(
        id="WATERMARKS_NOT_TRANSFERABLE",
        error="ConfigurationError",
        title="The positions do not fit this job",
        cause=(
            "The positions come from another type of source or watermark, or from a job whose source settings give "
            "positions another meaning."
        ),
        impact=NOTHING_CHANGED,
        action=(
            "Set the setting that the message names to the value of the other job, or import positions from a job "
            "with the same source."
        ),
    ),
    ErrorEntry(
        id="SOURCE_RECREATED",
        error="ConfigurationError",
        title="The dataset's source was recreated",
        cause="The topic or table was deleted and created again after the watermark had been stored.",
        impact=NOTHING_CHANGED,
        action=(
            "Set the watermark to null, then run the job, which begins at source.start. To begin elsewhere, set the "
            "watermark to null first, then to a position of the new topic or table."
        ),
        command="dataset set-watermark JOB.yaml DATASET null",
    ),
)
