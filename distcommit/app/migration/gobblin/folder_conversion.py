"""Conversion of Gobblin's folders to the job's folders."""

from __future__ import annotations

import re

from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft
from distcommit.app.migration.gobblin.read_properties import Property

_OURS = "a folder of this job's own below it: nobody else's files may be there"


def put_folders(job: JobFileDraft, name: str) -> None:
    """Set `paths` to folders of this job only, below the Gobblin folders, which several jobs share."""
    folder = re.sub(r"[^\w.-]+", "_", name)
    default = job.pop("fs.uri")
    output = job.pop("data.publisher.final.dir") or job.pop("data.publisher.final.dir.0")
    systems = [job.pop("data.publisher.fs.uri"), job.pop("writer.fs.uri"), default]
    root = _root(next((entry for entry in systems if entry is not None), None))
    for entry in systems:
        job.skip(entry, "is a part of paths")
    state, uri = job.pop("state.store.dir"), job.pop("state.store.fs.uri")
    job.skip(uri, "is a part of paths.store" if state else "no state.store.dir: the store is beside the output")
    job.put(output, "paths.output", _root_path(root, output, folder) if output else "output", _OURS)
    beside = f"{_root_path(root, output, '')}distcommit/{folder}" if output else ""
    store_folder = f"distcommit/{folder}/store"
    store_root = _root(uri) if uri else root
    value = _root_path(store_root, state, store_folder) if state else f"{beside}/store" if beside else "store"
    job.put(state, "paths.store", value, _OURS)
    data = job.pop("writer.staging.dir")
    task_data = job.pop("task.data.root.dir")
    staging = data or task_data
    store_folder = f"distcommit/{folder}/staging"
    value = _root_path(root, staging, store_folder) if staging else f"{beside}/staging" if beside else "staging"
    job.put(staging, "paths.staging", value, _OURS)
    if data is not None:
        job.skip(task_data, "paths.staging holds all that is not published yet")


def _root(uri: Property | None) -> str:
    if uri is None or re.fullmatch(r"file:(//localhost)?/*", uri.value):
        return ""
    return uri.value.rstrip("/")


def _root_path(root: str, of: Property, below: str) -> str:
    path = of.value.removeprefix("file://") if of.value.startswith("file:///") else of.value
    path = path if "://" in path or not root else f"{root}/{path.lstrip('/')}"
    return f"{path.rstrip('/')}/{below}"
