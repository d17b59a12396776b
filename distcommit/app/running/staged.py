"""A run that reads has begun, and what only Spark can read is staged for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module

from pyspark.sql import SparkSession

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.running.run_context import Begun, begun
from distcommit.engine.driver.events import Observer


@contextmanager
def begun_to_read(
    folders: JobFolders, session: SparkSession | None, command: str, who: str, observer: Observer | None = None
) -> Iterator[Begun]:
    """A run as `begun`. Where the source says by what (`staged_by`), the driver has Spark read its datasets first, and
    what that came to is the run's source for as long as the block lasts."""
    with begun(folders, session, command, who, observer) as run:
        source = folders.config.source
        if not source.staged_by:
            yield run
            return
        module, _, function = source.staged_by.partition(":")
        staged = getattr(import_module(module), function)
        with staged(run.spark, source, run.settings.store) as frames:
            yield run._replace(settings=replace(run.settings, flow=run.settings.flow.with_source(frames)))
