"""Spooling of a streaming query's micro-batch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame

from distcommit.core.errors import ConfigurationError
from distcommit.protocol.paths.staging import SPOOL_FOLDER, spooled_micro_batch, spooled_query
from distcommit.sources.micro_batch.spool import Spool
from distcommit.sources.micro_batch.spooled_batch import SpooledBatch
from distcommit.stores.folders.staging import remove_attempts
from distcommit.stores.state.job_store import JobStore

_QUERY_ID = "sql.streaming.queryId"


def query_id_of(batch: DataFrame) -> str:
    """Return the id of the streaming query that a micro-batch belongs to. Raise ConfigurationError outside
    `foreachBatch`."""
    try:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    except PySparkAttributeError as error:
        raise ConfigurationError(
            "micro-batches cannot be committed over Spark Connect",
            id="MICRO_BATCH_INVALID",
            found=str(error),
            todo="run the streaming query in a session without spark.remote",
        ) from error
    if not query_id:
        raise ConfigurationError(
            "Job.on_batch was not called by a streaming query",
            id="MICRO_BATCH_INVALID",
            expected=f"the property {_QUERY_ID}, which Spark sets where it calls foreachBatch",
            todo="use stream.writeStream.foreachBatch(job.on_batch), or call on_batch once in your own function",
        )
    return str(query_id)


@contextmanager
def spooled(
    batch: DataFrame, batch_id: int, query_id: str, dataset_column: str, store: JobStore, partitions: int
) -> Iterator[SpooledBatch]:
    """Spool a micro-batch, and yield its source. At the end of the block, delete its rows.

    Rows of the query that dead runs have spooled are deleted, too.

    Raises:
        ConfigurationError: if the micro-batch lacks the dataset column.
    """
    if dataset_column not in batch.columns:
        raise ConfigurationError(
            "the micro-batch has no column that names the dataset",
            id="MICRO_BATCH_INVALID",
            expected=dataset_column,
            found=", ".join(batch.columns),
            todo="correct source.dataset_column, or the streaming DataFrame",
        )
    fs, root, of_query = store.fs, store.roots.staging, spooled_query(query_id)
    remove_attempts(fs, root, [of_query])
    folder = f"{root}/{spooled_micro_batch(query_id, batch_id, uuid.uuid4().hex)}"
    fs.make_folders(folder)
    spool = Spool(fs, folder, dataset_column, store.buckets, partitions, store.groups)
    try:
        attempts = [row.attempt for row in batch.mapInArrow(spool, "attempt string").collect()]
        yield SpooledBatch(spool, tuple(attempts), query_id, batch_id)
    finally:
        remove_attempts(fs, root, [of_query])
        fs.delete_folder(f"{root}/{SPOOL_FOLDER}")
