"""Commit micro-batches of streaming queries."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.running.run_context import open_reading_run
from distcommit.core.errors import TransientError, printable
from distcommit.engine.driver.run import run
from distcommit.spark.spool_micro_batch import query_id_of, spooled
from distcommit.stores.logs.fencing import end_run

logger = logging.getLogger(__name__)


def commit_micro_batch(folders: JobFolders, batch: DataFrame, batch_id: int, user: str) -> None:
    """Commit a micro-batch; see `Job.on_batch`."""
    query_id, source = query_id_of(batch), folders.config.source
    command = f"batch {batch_id} of query {query_id}"
    with (
        open_reading_run(folders, batch.sparkSession, command, user) as (launch, settings, observer, _),
        ExitStack() as stack,
    ):
        flow = settings.flow
        if source.batch_column:
            spool = spooled(batch, batch_id, query_id, source.batch_column, settings.store, settings.partitions)
            flow = flow.with_source(stack.enter_context(spool))
        seconds, fixed_settings = folders.config.limits.seconds, folders.fixed_settings()
        result = run(launch, replace(settings, flow=flow), max_seconds=seconds, fixed=fixed_settings, observer=observer)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
    reasons = "; ".join(f"{cause.names}: {cause.text}" for cause in result.reasons.causes()) or result.error
    if result.succeeded:
        return
    if not source.batch_column:
        logger.warning("the run did not commit all datasets: %s", printable(reasons), extra={"run": result.run_id})
        return
    raise TransientError(
        "a micro-batch is not committed as a whole",
        id="MICRO_BATCH_INCOMPLETE",
        query=query_id,
        batch=batch_id,
        run=result.run_id,
        found=reasons,
        todo="correct the cause, and start the query again from its checkpoint: it commits the rest",
    )
