"""Errors of sources and of the positions in them."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import DATASET_WAITS, NO_RUN_BEGINS, ErrorEntry

_RUN = "run JOB.yaml"
_CHECK = "check JOB.yaml"
_SET_WATERMARK = "dataset set-watermark JOB.yaml DATASET null"

ENTRIES = (
    ErrorEntry(
        id="SOURCE_FAILED",
        error="SourceError",
        title="The source cannot be read",
        cause="The source rejected a request, or returned data that cannot be used.",
        impact=DATASET_WAITS,
        action="Correct the source, or the setting in section source that the message names; then run again.",
        command=_RUN,
    ),
    ErrorEntry(
        id="SOURCE_UNAVAILABLE",
        error="SourceUnavailableError",
        title="The source as a whole is unavailable",
        cause=(
            "Planning failed as a whole: the source does not respond or rejects a request, or a setting in section "
            "source is wrong."
        ),
        impact="Nothing is read. Sealed commits are replayed.",
        action="Repair the source, or correct the setting in section source that the message names; then run again.",
        command=_RUN,
    ),
    ErrorEntry(
        id="SOURCE_SERVER_UNAVAILABLE",
        error="TransientError",
        title="The source's server is unavailable",
        cause="The server, database or broker cannot be reached, is busy, or closed the connection.",
        impact=DATASET_WAITS,
        action="Start the server that the message names, or correct its address in section source; then run again.",
        command=_RUN,
    ),
    ErrorEntry(
        id="SOURCE_SETTINGS_INVALID",
        error="SourceError",
        title="The source's settings do not fit its data",
        cause="The watermark column, the keys or the columns in the job file do not fit the table.",
        impact=DATASET_WAITS,
        action="Correct the setting in section source that the message names.",
        command=_CHECK,
    ),
    ErrorEntry(
        id="SOURCE_PLAN_INVALID",
        error="SourceError",
        title="A custom source breaks its contract",
        cause="The source's plan, or the positions that its extractor reports, are not valid.",
        impact=DATASET_WAITS,
        action="Correct the source's class, and test the class by a contract of distcommit.testing.contracts.",
    ),
    ErrorEntry(
        id="SOURCE_REQUEST_REJECTED",
        error="SourceError",
        title="The source's server rejects a request",
        cause="The server rejects a statement or request: a permission is missing, or a setting is wrong.",
        impact=DATASET_WAITS,
        action="Grant the permission that the message names, or correct the setting in section source.",
    ),
    ErrorEntry(
        id="SOURCE_TABLE_MISSING",
        error="SourceError",
        title="A table does not exist",
        cause="The job file names a table that does not exist, or that this user may not see.",
        impact=DATASET_WAITS,
        action="Correct the name in section source, create the table, or grant this user the permission to read it.",
        command=_CHECK,
    ),
    ErrorEntry(
        id="SOURCE_TOPIC_MISSING",
        error="SourceError",
        title="A topic does not exist",
        cause="The job file names a topic that does not exist, or that this user may not see.",
        impact=DATASET_WAITS,
        action="Correct the name in source.topics, create the topic, or grant this user DESCRIBE on the topic.",
        command=_CHECK,
    ),
    ErrorEntry(
        id="SOURCE_FILE_UNREADABLE",
        error="SourceError",
        title="A source file or folder cannot be read",
        cause="The file changed or was deleted while it was read, its storage failed, or its folder cannot be listed.",
        impact=DATASET_WAITS,
        action=(
            "Repair or remove the file that the message names. Write files elsewhere, and rename complete ones into "
            "source.paths."
        ),
        command=_RUN,
    ),
    ErrorEntry(
        id="SOURCE_FILES_UNREADABLE",
        error="SourceError",
        title="The contents of source files cannot be read",
        cause="Files are damaged or truncated, in another format or encoding, or have a wrong header or row.",
        impact=DATASET_WAITS,
        action="Repair or remove the named files, or set source.on_unreadable_file to skip or divert.",
        command=_RUN,
    ),
    ErrorEntry(
        id="SOURCE_VALUE_UNREADABLE",
        error="SourceError",
        title="A column of the source cannot be read",
        cause="A value or type of the column has no counterpart in the output.",
        impact=DATASET_WAITS,
        action="Correct the value, or leave the column out by source.overrides.TABLE.columns.",
    ),
    ErrorEntry(
        id="SOURCE_ORDER_WRONG",
        error="SourceError",
        title="The source returns records in another order",
        cause="Records do not arrive in ascending order of their watermark column.",
        impact=DATASET_WAITS,
        action=(
            "Make the source return records in ascending order of source.watermark. For a database, correct the "
            "column's collation or index."
        ),
    ),
    ErrorEntry(
        id="SOURCE_READ_INCOMPLETE",
        error="SourceError",
        title="The source changed while it was read",
        cause="Rows, pages or a topic were deleted or changed during the read, or its staged rows are gone.",
        impact=DATASET_WAITS,
        action="Run again. A streaming query must be restarted from its checkpoint.",
        command=_RUN,
    ),
    ErrorEntry(
        id="SINK_FEEDS_SOURCE",
        error="SourceError",
        title="The sink writes into the source",
        cause="The sink writes to a topic, table or folder that the source reads.",
        impact=DATASET_WAITS,
        action=(
            "Exclude the topic, table or folder that the message names in section source, or change its name in "
            "section sink."
        ),
    ),
    ErrorEntry(
        id="DATASET_NOT_PLANNED",
        error="PlanError",
        title="The dataset cannot be planned",
        cause=(
            "The stored position does not exist in the source, or does not fit the source's present data or settings."
        ),
        impact=DATASET_WAITS,
        action=(
            "Restore the source's data, or set the dataset's watermark. After null the next run begins at "
            "source.start, which may publish records again."
        ),
        command=_SET_WATERMARK,
    ),
    ErrorEntry(
        id="SOURCE_QUERY_CHANGED",
        error="QueryChangedError",
        title="The dataset's query was changed",
        cause="The dataset was read by another query than the one in the job file.",
        impact=DATASET_WAITS,
        action=(
            "Restore the query, or set the watermark. Its present value continues with the new query, and skips the "
            "rows below the watermark. The value null begins at source.start, and publishes earlier rows again."
        ),
        command=_SET_WATERMARK,
    ),
    ErrorEntry(
        id="SOURCE_READER_CHANGED",
        error="PlanError",
        title="The Spark reader was changed",
        cause="The dataset was read by another reader, other options or another transform than the job file has now.",
        impact=DATASET_WAITS,
        action=(
            "Restore the reader, its options and source.transform, or set the watermark. Its present value continues "
            "with the new reader, and skips the rows below the watermark. The value null publishes all rows again."
        ),
        command=_SET_WATERMARK,
    ),
    ErrorEntry(
        id="WATERMARK_COLUMN_ENDED",
        error="PlanError",
        title="No row is at or after the watermark",
        cause="The table has no value at or after the stored position: it was truncated, restored or refilled.",
        impact=DATASET_WAITS,
        action=(
            "Wait for newer rows if only the newest rows were deleted. Otherwise set the watermark: null publishes all"
            " rows again."
        ),
        command=_SET_WATERMARK,
    ),
    ErrorEntry(
        id="WATERMARK_KEY_REMOVED",
        error="SourceError",
        title="The watermark column is no longer a key",
        cause="The watermark was set while the column was a key, and the key was removed.",
        impact=DATASET_WAITS,
        action=(
            "Restore the key, or wait for a greater value of the watermark column. If the table was refilled, set the "
            "watermark to null, which begins at source.start and publishes earlier rows again."
        ),
        command=_SET_WATERMARK,
    ),
    ErrorEntry(
        id="WATERMARK_VALUE_INVALID",
        error="SourceError",
        title="A record has no usable position",
        cause="The watermark column or field of a record has no value, or a value that cannot be a position.",
        impact=(
            "Rows of tables and Spark readers without a value are never read, and all other rows are published. In all "
            "other cases the dataset's watermark does not move, and no data is lost. Other datasets continue."
        ),
        action=(
            "Correct the record or set another watermark column or field. Rows can also be excluded: those of a table "
            "by source.overrides.TABLE.where, those of a Spark reader by its options."
        ),
    ),
    ErrorEntry(
        id="STORED_POSITION_FOREIGN",
        error="SourceError",
        title="The stored position does not fit source.watermark",
        cause=(
            "The position is a value of another column or field than the one that source.watermark names. After a "
            "rebuild of the store the position can also be unknown."
        ),
        impact=DATASET_WAITS,
        action=(
            "Restore the source.watermark that the message names, or set the dataset's watermark: null begins at the "
            "start of the dataset, which publishes its records again."
        ),
        command=_SET_WATERMARK,
    ),
    ErrorEntry(
        id="KAFKA_RECORDS_EXPIRED",
        error="PlanError",
        title="Kafka deleted records before they were read",
        cause="The topic's retention ended before the job had read the records.",
        impact=(
            "Records that Kafka deleted cannot be read any more. The dataset's watermark does not move. Other "
            "datasets continue."
        ),
        action=(
            "Set source.expired_offsets to `earliest` to continue at the oldest record that is left, or to `latest` "
            "to read only new records. The run records the others as lost."
        ),
        command="run JOB.yaml --set=source.expired_offsets=earliest",
    ),
    ErrorEntry(
        id="KAFKA_POSITION_MISSING",
        error="PlanError",
        title="The stored position is not in the topic",
        cause="The topic was truncated, or deleted and created again.",
        impact=(
            "Records that were deleted before they were read are lost. The dataset's watermark does not move. Other "
            "datasets continue."
        ),
        action=(
            "Set the dataset's watermark to null or to positions that the topic has. The value null begins at "
            "source.start, and publishes again the records that are still in the topic."
        ),
        command=_SET_WATERMARK,
    ),
    ErrorEntry(
        id="KAFKA_TRANSACTION_OPEN",
        error="PlanError",
        title="An open transaction precedes the stored position",
        cause="A producer has not ended its transaction, so that Kafka returns no later records.",
        impact=DATASET_WAITS,
        action=(
            "Wait until the producer ends the transaction, then run again. If the producer is gone, abort the "
            "transaction by kafka-transactions.sh."
        ),
        command=_RUN,
    ),
    ErrorEntry(
        id="REST_PAGING_INVALID",
        error="SourceError",
        title="The server's pages do not fit source.paging",
        cause="The pages repeat, skip or never end, have too many records, or are not readable as the settings state.",
        impact=DATASET_WAITS,
        action="Correct source.paging, or request smaller pages by source.params.",
    ),
    ErrorEntry(
        id="REST_ANSWER_UNUSABLE",
        error="SourceError",
        title="An answer of the server exceeds a limit",
        cause="The answer is too large, takes longer than source.response_timeout_s, or is compressed more than once.",
        impact=DATASET_WAITS,
        action="Request smaller pages by source.params, set a longer source.response_timeout_s, or correct the server.",
    ),
    ErrorEntry(
        id="SPARK_ROWS_NOT_STAGED",
        error="SourceError",
        title="The Spark source was called outside a run",
        cause="A program called the source itself. Only a run has rows to read: it asks Spark and stages the rows.",
        impact=NO_RUN_BEGINS,
        action="Start a run by `distcommit run`, or in Python by `Job.run`. Do not call the source yourself.",
        command=_RUN,
    ),
)
