"""Errors of a run as a whole: fencing, locks, Spark, storage and services that do not respond."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import DATASET_WAITS, NO_RUN_BEGINS, NOTHING_CHANGED, RUN_ENDS, ErrorEntry

ENTRIES = (
    ErrorEntry(
        id="OPERATION_FAILED",
        error="DistcommitError",
        title="An operation failed",
        cause="An operation failed for the reason that the message states.",
        impact=RUN_ENDS,
        action="Correct the cause that the message states, then repeat the command.",
        command="status JOB.yaml",
    ),
    ErrorEntry(
        id="UNEXPECTED_ERROR",
        error="Exception",
        title="An unexpected error ended the command",
        cause="Python, Spark or a library raised an error that distcommit does not expect.",
        impact=RUN_ENDS,
        action="Repeat the command with `--verbose`, and report the traceback.",
    ),
    ErrorEntry(
        id="STORAGE_FAILED",
        error="DistcommitError",
        title="A storage operation failed",
        cause="The file system rejected an operation.",
        impact=RUN_ENDS,
        action="Correct the free space, permissions or connection of the path that the message names, then run again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="STORAGE_UNAVAILABLE",
        error="TransientError",
        title="The storage is unavailable",
        cause="The file system does not respond, or has too little memory or too few file handles.",
        impact=RUN_ENDS,
        action="Start the storage, or give its host memory and file handles; then run again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="STORAGE_REFUSED",
        error="StorageRefusedError",
        title="The storage rejects all writes",
        cause="The file system is full, mounted read-only, or not writable by this user.",
        impact=RUN_ENDS,
        action="Free space, mount the file system writable, or correct the permissions; then run again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="SERVICE_UNAVAILABLE",
        error="TransientError",
        title="A service is temporarily unavailable",
        cause="A service that the job needs does not respond, or responds with a temporary error.",
        impact=DATASET_WAITS,
        action="Start the service that the message names, then run again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="SQL_ENGINE_FAILED",
        error="TransientError",
        title="The SQL engine of a converter failed",
        cause="DuckDB, which evaluates SQL inside the task, ran out of memory, was interrupted or has a fault.",
        impact=DATASET_WAITS,
        action=(
            "Run again. If memory ran out, give the executors more by `spark.executor.memoryOverhead`, or simplify the "
            "SQL of the converter that the message names."
        ),
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="OUTCOME_UNKNOWN",
        error="OutcomeUnknownError",
        title="It is unknown whether a write took effect",
        cause="The storage failed during a write and could not be read afterwards.",
        impact="The run ends. Nothing is deleted, and the next run reads the current state.",
        action="Repair the storage that the message names, then run again. Delete nothing.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="STATE_CHANGED",
        error="ConflictError",
        title="Another process changed the state first",
        cause="The stored state differs from the state that the operation had read. The operation was not applied.",
        impact=NOTHING_CHANGED,
        action="Read the current state by `distcommit status`, then decide whether to repeat the command.",
        command="status JOB.yaml",
    ),
    ErrorEntry(
        id="RUN_FENCED",
        error="FencedError",
        title="A newer run has taken over",
        cause="A newer run of the job has fenced this one.",
        impact="This run publishes nothing more. The newer run replays its sealed commits.",
        action="Wait for the newer run, which `distcommit status` shows.",
        command="status JOB.yaml",
    ),
    ErrorEntry(
        id="RUN_CANCELLED",
        error="RunCancelledError",
        title="The run was cancelled",
        cause="An operator cancelled the run.",
        impact="The run publishes nothing more. The next run replays its sealed commits.",
        action="Run the job again. The run replays sealed commits and reads the rest again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="JOB_LOCK_HELD",
        error="LockHeldError",
        title="Another run of the job is alive",
        cause="Another process holds the job lock.",
        impact=NO_RUN_BEGINS,
        action="Wait for the other run, or cancel it by `distcommit cancel`.",
        command="cancel JOB.yaml",
    ),
    ErrorEntry(
        id="PROCESS_LOST",
        error="ProcessLostError",
        title="A process of the run died",
        cause="A JVM, executor or Python worker ended, often because it had too little memory.",
        impact=RUN_ENDS,
        action=(
            "Run again. If the process dies again, read its log, and raise spark.driver.memory, spark.executor.memory "
            "or spark.executor.memoryOverhead in spark.conf."
        ),
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="EXECUTORS_UNAVAILABLE",
        error="TransientError",
        title="No executor of Spark starts",
        cause="The cluster has too few free cores or memory for an executor, or executors end at once.",
        impact="The run ends before it reads or commits anything.",
        action=(
            "Look up the application in the cluster's web interface. Free resources, ask for less by "
            "`spark.executor.memory` and `spark.executor.cores`, or correct what the executors' logs name. Then run "
            "again."
        ),
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="SPARK_UNAVAILABLE",
        error="TransientError",
        title="Spark does not start",
        cause="The Spark master does not respond, or has no free resources.",
        impact=NO_RUN_BEGINS,
        action="Start the Spark master that spark.master names, or free resources there; then run again.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="EXECUTOR_READS_OLD_STORE",
        error="TransientError",
        title="An executor reads an older job log",
        cause="The store's file system shows an executor an older folder listing than the driver.",
        impact=RUN_ENDS,
        action=(
            "Mount paths.store without an attribute cache (NFS: `noac`), so that all executors list new files at once."
        ),
    ),
    ErrorEntry(
        id="COMMIT_GROUP_HELD_BACK",
        error="HeldBackError",
        title="An atomic commit group is held back",
        cause="A dataset of the commit group cannot be published, and the group is published only as a whole.",
        impact="No dataset of the group is published. Other groups continue.",
        action=(
            "Correct the cause, then release the dataset that the message names with `retry`. If the cause can't be "
            "corrected, release it with `abandon`, so that the next run reads its records again. `accept` loses the "
            "unpublished records. The next run then publishes the group."
        ),
        command="dataset release JOB.yaml DATASET retry",
    ),
    ErrorEntry(
        id="MICRO_BATCH_INCOMPLETE",
        error="TransientError",
        title="A micro-batch is not committed completely",
        cause="At least one dataset of the micro-batch failed.",
        impact="The streaming query stops. Committed datasets are not repeated.",
        action="Correct the failure that the message names, then start the query again from its checkpoint.",
        command="status JOB.yaml",
    ),
)
