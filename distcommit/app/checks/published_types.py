"""Warnings about columns whose type in the job file does not fit the published files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.pipeline.task_flow import FlowColumns
from distcommit.protocol.paths.output import is_published_name, published_epoch, published_folder
from distcommit.schemas.evolution import is_joinable
from distcommit.schemas.known_columns import UNKNOWN
from distcommit.sinks.files.footer import read_written_schema
from distcommit.stores.folders.folder_trees import files_below
from distcommit.stores.state.job_store import JobStore

_MOST_DATASETS = 20
"""Number of datasets whose newest file is read on a local file system."""
_MOST_REMOTE = 2
"""Number of datasets whose newest file is read elsewhere, where files are read as a whole."""


def changed_type_warnings(folders: JobFolders, store: JobStore) -> Iterator[str]:
    """Yield a warning for each column that would get a type that readers can't join with its published type.

    Compares the columns that the job file determines with the newest Parquet file of some datasets.
    """
    flow = folders.config.task_flow()
    reached = FlowColumns.of(flow.source).after(flow.stages)
    urns = (urn for bucket in range(store.buckets) for urn in sorted(store.bucket_log(bucket).refresh().datasets))
    datasets = list(islice(urns, _MOST_DATASETS if store.fs.scheme == "file" else _MOST_REMOTE))
    changed: dict[str, list[str]] = {}
    for branch in flow.branches:
        fields = [field for field in reached.after(branch.stages).columns.fields if field.type != UNKNOWN]
        for urn in datasets if branch.sink.abilities.files and fields else ():
            path = _newest_file(store.fs, f"{store.roots.output}/{published_folder(urn, branch.name)}")
            published = _types(store.fs, path)
            for field in fields:
                before = published.get(field.name, field.type)
                if not is_joinable(before, field.type):
                    text = f"column {field.name} is {before} in published files, and {field.type} in the job file"
                    changed.setdefault(text, []).append(urn)
    command = folders.fixed_settings().restarted_by
    remedy = f"in new folders: `{command}`" if command else "in new folders (paths)"
    for text, named in changed.items():
        yield (
            f"{text} (dataset {', '.join(named[:3])}{', ...' if len(named) > 3 else ''}): readers can't join both."
            f" Restore the published type, or publish all records again {remedy}"
        )


def _newest_file(fs: FileSystem, folder: str) -> str:
    """Return the path of a file of the newest epoch; empty if there is none."""
    named = {path: path.rpartition("/")[2] for path in files_below(fs, folder)}
    epochs = {path: published_epoch(name) for path, name in named.items() if is_published_name(name)}
    return max(epochs, key=epochs.__getitem__, default="")


def _types(fs: FileSystem, path: str) -> dict[str, object]:
    try:
        return {field.name: field.type for field in read_written_schema(fs, path)} if path else {}
    except (DistcommitError, OSError):  # of another format; or damaged, which the audit reports
        return {}
