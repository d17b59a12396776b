"""Errors of records and of the constructs that transform them."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import DATASET_WAITS, NO_RUN_BEGINS, ErrorEntry

ENTRIES = (
    ErrorEntry(
        id="RECORD_UNREADABLE",
        error="RecordError",
        title="A record cannot be decoded",
        cause="A record does not have the format that the source or a converter requires.",
        impact=DATASET_WAITS,
        action=(
            "Correct the producer or the converter; or set on_rejected: divert, which sends unreadable records to the "
            "error branch."
        ),
    ),
    ErrorEntry(
        id="RECORD_REJECTED",
        error="RecordError",
        title="A record is rejected",
        cause="A construct rejects the record, and its setting is `fail`.",
        impact=DATASET_WAITS,
        action=(
            "Correct the producer or the construct; or set on_rejected: divert (a row checker: on_failure), which sends"
            " rejected records to the error branch."
        ),
    ),
    ErrorEntry(
        id="RECORD_FIELDS_NEW",
        error="RecordError",
        title="A record has new fields",
        cause="The record has fields that earlier records do not have, and `evolution` is `fail`.",
        impact=DATASET_WAITS,
        action="Check the producer. To add the fields, set evolution: evolve; to ignore them, evolution: pin.",
    ),
    ErrorEntry(
        id="RECORD_FIELDS_TOO_MANY",
        error="RecordError",
        title="Records have too many fields",
        cause="The records have more different fields than columns can be inferred for.",
        impact=DATASET_WAITS,
        action="Set the converter's fields, with type map for keys of any name.",
    ),
    ErrorEntry(
        id="RECORD_COLUMNS_UNSTABLE",
        error="ConfigurationError",
        title="The columns change too often",
        cause="In one run the converter inferred more different sets of columns than the store accepts.",
        impact=DATASET_WAITS,
        action=(
            "Declare the columns in the converter's fields; or set its `evolution` to `pin`, which ignores fields "
            "that are new."
        ),
    ),
    ErrorEntry(
        id="RECORD_SCHEMA_INCOMPATIBLE",
        error="RecordError",
        title="A record's schema is not compatible",
        cause=(
            "The schema differs from earlier ones in a way that the converter's `evolution` or `on_incompatible` does "
            "not accept."
        ),
        impact=DATASET_WAITS,
        action=(
            "Correct the schema in the producer. To accept compatible changes, set `evolution: evolve`; to accept the "
            "others too, set `on_incompatible: accept`."
        ),
    ),
    ErrorEntry(
        id="RECORD_SCHEMA_UNKNOWN",
        error="RecordError",
        title="Records name unknown schema ids",
        cause="Many records of a work unit name schema ids that the registry does not have.",
        impact=DATASET_WAITS,
        action=(
            "Set the registry's url to the registry of the producers, and restore the schemas that the message names "
            "there."
        ),
    ),
    ErrorEntry(
        id="QUALITY_CHECK_FAILED",
        error="QualityError",
        title="A mandatory quality check failed",
        cause="A task quality checker rejected the work unit.",
        impact="Nothing of the work unit is published. Other datasets continue.",
        action="Correct the data at the source or the checker's limits; or set level: optional for the checker.",
    ),
    ErrorEntry(
        id="TIME_LIMIT_EXCEEDED",
        error="TimeLimitError",
        title="A construct exceeded its time limit",
        cause="A converter, checker or fork operator needed longer for a batch than its limit.",
        impact=DATASET_WAITS,
        action="Correct the converter, checker or fork that the message names, or raise limits.construct_seconds.",
    ),
    ErrorEntry(
        id="CONSTRUCT_STUCK",
        error="StuckError",
        title="A construct did not return",
        cause=(
            "Native code of a converter, checker or fork did not return within twice limits.construct_seconds, so the "
            "worker was killed."
        ),
        impact=(
            "The dataset's watermark does not move, and no data is lost. The task's other work units continue in a new "
            "process."
        ),
        action=(
            "Correct the converter, checker or fork that the message names, or the records; or raise "
            "limits.construct_seconds."
        ),
    ),
    ErrorEntry(
        id="WORK_UNIT_KILLS_WORKER",
        error="WorkerDiedError",
        title="Reading a work unit kills the worker",
        cause="The worker process died twice, the second time while it read this work unit alone.",
        impact="The dataset is not read. All other datasets are published.",
        action=(
            "Read the executor's log. If memory ran out, raise spark.executor.memoryOverhead in spark.conf; otherwise "
            "correct the library or the records that the log names."
        ),
        command="status JOB.yaml",
    ),
    ErrorEntry(
        id="CONSTRUCT_SETTINGS_INVALID",
        error="ConfigurationError",
        title="A construct does not fit the records",
        cause=(
            "A setting of a converter, checker or fork names a column, type or expression that the records do not have."
        ),
        impact=DATASET_WAITS,
        action="Correct the setting that the message names, or a converter before the named one.",
        command="check JOB.yaml",
    ),
    ErrorEntry(
        id="CONSTRUCT_CONTRACT_BROKEN",
        error="ConfigurationError",
        title="A custom construct breaks its contract",
        cause="A custom construct returned a value that its interface does not allow.",
        impact=DATASET_WAITS,
        action=(
            "Correct the custom class that the message names, and test the class by a contract of "
            "distcommit.testing.contracts."
        ),
    ),
    ErrorEntry(
        id="TASK_PROPERTY_INVALID",
        error="ConfigurationError",
        title="A property of a task cannot be stored",
        cause="A custom class returned a property by `task_properties` that is too large or has another type.",
        impact=DATASET_WAITS,
        action="Correct `task_properties` of the class that the message names.",
    ),
    ErrorEntry(
        id="BRANCH_MISSING",
        error="ConfigurationError",
        title="A branch is not in the job file",
        cause="Stored data belongs to a branch that was removed from the job file.",
        impact=DATASET_WAITS,
        action="Add the branch that the message names to fork.branches again.",
    ),
    ErrorEntry(
        id="REGISTRY_SETTINGS_REJECTED",
        error="ConfigurationError",
        title="The schema registry rejects the client",
        cause="The URL, the credentials or a client setting of the schema registry is wrong.",
        impact=NO_RUN_BEGINS,
        action="Correct the registry's url, credentials or client setting that the message names.",
    ),
    ErrorEntry(
        id="REGISTRY_UNAVAILABLE",
        error="TransientError",
        title="The schema registry is unavailable",
        cause="The registry does not respond, or has lost its schemas.",
        impact=DATASET_WAITS,
        action="Start the schema registry, or restore its schemas; then run again.",
        command="run JOB.yaml",
    ),
)
