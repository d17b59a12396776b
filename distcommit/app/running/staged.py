"""Begin a run that reads, and stage the datasets that only Spark can read."""

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
    """Begin a run as `begun`. If the source reads through Spark (`staged_by`), the driver first stages its datasets
    with Spark, and the staged files are the run's source within the block."""
    with begun(folders, session, command, who, observer) as run:
        source = folders.config.source
        if not source.staged_by:
            yield run
            return
        module, _, function = source.staged_by.partition(":")
        staged = getattr(import_module(module), function)
        with staged(run.spark, source, run.settings.store) as frames:
            yield run._replace(settings=replace(run.settings, flow=run.settings.flow.with_source(frames)))
