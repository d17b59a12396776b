"""Previews a job: one run in temporary folders, and the first records of its output."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec

from distcommit.app.auditing.files.read_published_files import PublishedFile, read_published
from distcommit.app.job_file.folder_locations import open_file_system, path_of
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.sections.folder_and_run_settings import PathSettings
from distcommit.app.jobs.job import Job
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.engine.driver.run import RunResult
from distcommit.engine.run_events import Observer
from distcommit.sinks.files.footer import read_batches
from distcommit.stores.folders.folder_trees import delete_tree

_TABLES = 20
_TEXT = 200


class ShownTable(msgspec.Struct, frozen=True):
    """The first records of a dataset in a branch.

    Attributes:
        dataset: dataset URN.
        branch: name of the branch; empty for records that were rejected before the fork.
        kind: `data` for accepted records, `rejected` for rejected ones.
        records: number of all records, including those that are not in `rows`.
        columns: names of the columns that the shown records have.
        rows: first records, each with its values as text in the order of `columns`; null is empty.
    """

    dataset: str
    branch: str
    kind: str
    records: int
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PreviewResult(msgspec.Struct, frozen=True):
    """The result of a preview.

    Attributes:
        run: result of the run.
        tables: one table for each dataset, branch and kind, at most 20.
        tables_omitted: number of further tables.
    """

    run: RunResult
    tables: tuple[ShownTable, ...]
    tables_omitted: int

    @property
    def succeeded(self) -> bool:
        """Whether everything that was read could be published."""
        return self.run.succeeded


def run_preview(config: JobConfig, observer: Observer | None = None) -> PreviewResult:
    """Run a job with a sink of type `console`, from the start of the source, in temporary folders. Raises the errors of
    a run (`Job.run`).
    """
    with temporary_job(config) as empty:
        result = Job(empty, throwaway=True).run(observer)
        tables, more = first_records(empty)
        return PreviewResult(result, tuple(tables), more)


@contextmanager
def temporary_job(config: JobConfig) -> Iterator[JobConfig]:
    """Yield the job with a new store, staging and output beside its staging folder. They are deleted at the end. A
    killed process leaves these folders.
    """
    root = f"{config.paths.staging}.console-{uuid.uuid4().hex[:12]}"
    paths = PathSettings(**{name: f"{root}/{name}" for name in ("store", "staging", "output")})
    commit = config.commit.model_copy(update={"durability": "none"})
    try:
        yield config.model_copy(update={"paths": paths, "commit": commit})
    finally:
        folder = path_of(root)
        delete_tree(open_file_system(root, durable=False, roots=(folder,)), folder)


def first_records(config: JobConfig) -> tuple[list[ShownTable], int]:
    """Return the first records of each dataset and branch, and the number of tables beyond the limit."""
    fs = open_file_system(config.paths.output, durable=False)
    rows = max(sink.preview_records for sink in config.sink_sections().values())
    shown: list[ShownTable] = []
    more = 0
    for folder in read_published(fs, path_of(config.paths.output)):
        tables: dict[tuple[str, str], list[PublishedFile]] = {}
        for file in sorted(folder.files, key=lambda file: file.path):
            tables.setdefault((file.footer.branch, file.footer.kind), []).append(file)
        for (branch, kind), files in sorted(tables.items()):
            if len(shown) < _TABLES:
                shown.append(_table(fs, folder.dataset_urn, branch, kind, files, rows))
            else:
                more += 1
    return shown, more


def _table(fs: FileSystem, dataset: str, branch: str, kind: str, files: list[PublishedFile], rows: int) -> ShownTable:
    batches = (batch for file in files for batch in read_batches(fs, file.path))
    rows_shown = list(islice((row for batch in batches for row in batch.slice(0, rows).to_pylist()), rows))
    columns = tuple(dict.fromkeys(name for row in rows_shown for name in row))
    texts = tuple(tuple(_text(row.get(name)) for name in columns) for row in rows_shown)
    return ShownTable(dataset, branch, kind, sum(file.footer.records for file in files), columns, texts)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = f"0x{value[:_TEXT].hex()}"
    text = str(value)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
