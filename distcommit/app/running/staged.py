"""A run that reads has begun, and what only Spark can read is staged for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.running.begun import Begun, begun
from distcommit.engine.events import Observer
from distcommit.sources.spark.source import SparkSource
from distcommit.spark.frames import staged_frames


@contextmanager
def begun_to_read(
    folders: JobFolders, session: SparkSession | None, command: str, who: str, observer: Observer | None = None
) -> Iterator[Begun]:
    """A run as `begun`. With a source of type `spark` the driver has Spark read its datasets first, and what that came
    to is the run's source for as long as the block lasts."""
    with begun(folders, session, command, who, observer) as run:
        source = run.settings.flow.source
        if not isinstance(source, SparkSource):
            yield run
            return
        with staged_frames(run.spark, source, run.settings.store) as frames:
            yield run._replace(settings=replace(run.settings, flow=run.settings.flow.with_source(frames)))
