"""Errors of commit steps and of sealed sequences."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import DATASET_WAITS, NOTHING_CHANGED, QUARANTINED, ErrorEntry

_RELEASE = "dataset release JOB.yaml DATASET retry"
_ACCEPT = "dataset release JOB.yaml DATASET accept"
_ABANDON = "dataset release JOB.yaml DATASET abandon"

ENTRIES = (
    ErrorEntry(
        id="STEP_LOST",
        error="LostError",
        title="A commit step is lost",
        cause=(
            "One step of a sealed commit, such as the rename of a file, can be neither verified nor repeated, because "
            "its data is missing."
        ),
        impact=QUARANTINED,
        action=(
            "Restore the data that the message names and release the dataset with `retry`. Without the data, release "
            "it with `abandon`, so that the next run reads the records again. `accept` loses the unpublished records."
        ),
        command=_RELEASE,
    ),
    ErrorEntry(
        id="STAGED_FILE_LOST",
        error="LostError",
        title="Staged data was lost before its publication",
        cause="A staged file was deleted or altered before its commit was executed.",
        impact=DATASET_WAITS,
        action=(
            "Run again, which reads the records again. If the dataset is quarantined, release the dataset with "
            "`abandon`."
        ),
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="STAGED_FILE_NOT_PUBLISHABLE",
        error="LostError",
        title="A staged file cannot be published",
        cause="The staged file of a commit is missing and was not published, or another file has its target path.",
        impact=QUARANTINED,
        action=(
            "Restore the file that the message names and release the dataset with `retry`. Without the file, release "
            "it with `abandon`, so that the next run reads the records again. `accept` loses the unpublished records."
        ),
        command=_RELEASE,
    ),
    ErrorEntry(
        id="PREPARED_ROWS_LOST",
        error="LostError",
        title="Prepared transactions are gone",
        cause="Another client rolled the prepared transactions back, or the database was restored from a copy.",
        impact=QUARANTINED,
        action="Release the dataset with `abandon`. The next run reads the records of the commit again.",
        command=_ABANDON,
    ),
    ErrorEntry(
        id="COMMIT_REJECTED",
        error="LostError",
        title="The target rejects a sealed commit",
        cause="The sink's committer reports that the target can never accept the commit.",
        impact=QUARANTINED,
        action=(
            "Correct the target and release the dataset with `retry`. If the target can never accept the commit, "
            "release it with `abandon`, so that the next run reads the records again. `accept` loses the unpublished "
            "records."
        ),
        command=_RELEASE,
    ),
    ErrorEntry(
        id="COMMIT_INFOS_REJECTED",
        error="DistcommitError",
        title="Changed commit infos cannot be recorded",
        cause=(
            "A sink's committer returned `RetryLater` with infos that are not plain data, or are the 101st change of a "
            "commit. Or the infos of all branches of a dataset are larger than 1 MiB and than before."
        ),
        impact=(
            "The commit stays pending with its last recorded infos, and is repeated with them. A failed replay counts "
            "towards replay.max_attempts."
        ),
        action="Correct the committer, then run again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="SEQUENCE_LOST",
        error="LostError",
        title="A commit of a custom program is lost",
        cause=(
            "One step that the program sealed through its `CommitStepStore` can be neither verified nor repeated, "
            "because its data is missing."
        ),
        impact=QUARANTINED,
        action=(
            "Restore the data that the message names and call `release(STORE, DATASET, 'retry')`. Otherwise call it "
            "with 'abandon', which rolls the commit back, or with 'accept', which loses the unpublished data."
        ),
        command=_RELEASE,
    ),
    ErrorEntry(
        id="SEQUENCE_OPEN",
        error="ConflictError",
        title="A sealed sequence is still open",
        cause="The dataset has a sealed sequence that is pending or quarantined.",
        impact=NOTHING_CHANGED,
        action="Commit the sequence by its `commit()`, or release the dataset by `release()`; then repeat the call.",
    ),
    ErrorEntry(
        id="STEP_FAILED",
        error="DistcommitError",
        title="A commit step failed",
        cause="A custom commit step or committer raised an error or returned a wrong value.",
        impact=DATASET_WAITS,
        action="Correct the code of the step or committer that the message names, then run again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="ROLLBACK_FAILED",
        error="DistcommitError",
        title="A rollback at the target failed",
        cause="The sink's committer raised an error while it rolled a commit back.",
        impact="The dataset stays as it was before the command.",
        action="Repair the sink's target, then release the dataset with `abandon` again.",
        command=_ABANDON,
    ),
    ErrorEntry(
        id="ROLLBACK_NOT_SUPPORTED",
        error="ConflictError",
        title="The commit cannot be rolled back by design",
        cause="The commit step or the sink does not implement a rollback.",
        impact=NOTHING_CHANGED,
        action=(
            "Release the dataset with `retry`, or with `accept`, which loses the unpublished records. To make "
            "`abandon` possible, implement `withdraw` (a committer) or `withdraw` and `undo` (a commit step)."
        ),
        command=_ACCEPT,
    ),
    ErrorEntry(
        id="ROLLBACK_UNFINISHED",
        error="TransientError",
        title="Prepared data was not rolled back",
        cause="The dataset is released, but the target did not roll back the data that was prepared for it.",
        impact="Prepared data remains at the target. The dataset continues.",
        action="Roll back, at the target, the prepared transactions of the attempts that the message names.",
    ),
    ErrorEntry(
        id="COMMIT_NOT_REVERSIBLE",
        error="ConflictError",
        title="The commit can no longer be rolled back",
        cause="The target has published the commit, or its data was changed or compacted since.",
        impact=NOTHING_CHANGED,
        action=(
            "Release the dataset with `accept`. Published records stay, and the unpublished records of the commit are "
            "lost."
        ),
        command=_ACCEPT,
    ),
    ErrorEntry(
        id="COMMIT_UNCONFIRMED",
        error="ConflictError",
        title="The target does not confirm the commit",
        cause=(
            "The target's ledger was replaced after the commit's rows were prepared, so it does not record whether the "
            "rows are committed."
        ),
        impact=NOTHING_CHANGED,
        action=(
            "Search the target's table for the records of the commit that `distcommit dataset steps` prints. If the "
            "table has them, release the dataset with `accept`. Otherwise run the UPDATE statement that the message "
            "contains, then release the dataset with `retry`."
        ),
        command="dataset steps JOB.yaml DATASET",
    ),
    ErrorEntry(
        id="TARGET_EPOCH_DIFFERS",
        error="ConflictError",
        title="The target has another epoch of the dataset",
        cause="The store or the target was restored from a copy.",
        impact=QUARANTINED,
        action=(
            "Release the dataset with `accept` if the target has all records of the epoch that could not be committed. "
            "Otherwise restore store and target to the same state, and release with `retry`; or delete all data and the"
            " ledger row of the dataset at the target, and release with `restart`."
        ),
        command=_ACCEPT,
    ),
    ErrorEntry(
        id="SINK_UNAVAILABLE",
        error="SinkUnavailableError",
        title="The sink is unavailable",
        cause="The target does not respond, does not exist, or the sink's settings are wrong.",
        impact="Commits stay pending for a later run. The failure does not count towards replay.max_attempts.",
        action="Repair the target, or correct the setting in section sink that the message names; then run again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="SINK_EXCHANGED",
        error="SinkUnavailableError",
        title="A pending commit belongs to another sink",
        cause="The job file's sink, or its version, differs from the one that prepared the commit.",
        impact="Commits stay pending for a later run. The failure does not count towards replay.max_attempts.",
        action="Run the job with the sink and version that the message names until nothing is pending.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="TARGET_UNAVAILABLE",
        error="TransientError",
        title="The target is temporarily unavailable",
        cause="The database or the brokers do not respond, or have aborted a transaction.",
        impact="Commits stay pending. A later attempt or run repeats the request.",
        action="Run again. If the error persists, repair the database or the brokers that the message names.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="LEDGER_TOPIC_LOST",
        error="TransientError",
        title="The ledger topic was deleted",
        cause="Another client deleted the topic that records the commits.",
        impact="Commits stay pending.",
        action=(
            "Determine from the target topics which pending commits are complete. Run the job, which creates a new "
            "ledger topic. Then release each dataset whose commit was prepared for the old one: with `accept` if the "
            "target topic has its records, otherwise with `abandon`."
        ),
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="TABLE_CHANGED_CONCURRENTLY",
        error="TransientError",
        title="Other writers changed the table meanwhile",
        cause="Another writer changed, created or dropped the table during each attempt.",
        impact="Commits stay pending. A later attempt or run repeats the request.",
        action="Run again. If the error persists, run the table's other writers at another time.",
        command="run JOB.yaml",
    ),
)
